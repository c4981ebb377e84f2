"""Node affinity that keeps a pod away from nodes, beside whatever affinity the user wrote: pure. Called by `manifests`.

Nodes are named by `matchFields: metadata.name`, as DaemonSets do it: the label kubernetes.io/hostname is another word
than the node's name on some clouds. Terms are alternatives, so each of the user's gets the requirement.
"""

import re
from typing import Any

Document = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def keeping_away(spec: Document, nodes: list[str]) -> Document:
    """`spec` of a pod, with every way to be scheduled barred from these nodes. What is no node's name is left out."""
    names = [node for node in nodes if _NAME.fullmatch(node)]
    affinity = spec.get("affinity") or {}
    if not names or not isinstance(affinity, dict):
        return spec
    by_node = affinity.get("nodeAffinity") or {}
    required = by_node.get(_REQUIRED) or {} if isinstance(by_node, dict) else None
    terms = required.get("nodeSelectorTerms") or [{}] if isinstance(required, dict) else None
    if not isinstance(terms, list) or not all(isinstance(term, dict) for term in terms):
        return spec  # the API server will say what is wrong with it
    barred = {**(required or {}), "nodeSelectorTerms": [_barred(term, names) for term in terms]}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**by_node, _REQUIRED: barred}}}


def _barred(term: Document, names: list[str]) -> Document:
    """Each requirement of this kind may name one node only."""
    away = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in names]
    return {**term, "matchFields": [*(term.get("matchFields") or []), *away]}
