"""Add node affinity that keeps a pod away from nodes to the affinity that the user wrote.

It is pure. Nodes are named by `matchFields: metadata.name`, as DaemonSets do it, because on some clouds the label
kubernetes.io/hostname differs from the node's name. Terms are alternatives, so each of the user's terms gets the
requirement.
"""

import re
from typing import Any

Document = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def keeping_away(spec: Document, nodes: list[str]) -> Document:
    """Return the pod spec `spec` with affinity that excludes these nodes.

    Strings that are no node names are left out.
    """
    names = [node for node in nodes if _NAME.fullmatch(node)]
    affinity = spec.get("affinity") or {}
    if not names or not isinstance(affinity, dict):
        return spec
    by_node = affinity.get("nodeAffinity") or {}
    required = by_node.get(_REQUIRED) or {} if isinstance(by_node, dict) else None
    terms = required.get("nodeSelectorTerms") or [{}] if isinstance(required, dict) else None
    if not isinstance(terms, list) or not all(isinstance(term, dict) for term in terms):
        return spec  # the API server will say what is wrong with it
    # A requirement of this kind may name one node only.
    away = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in names]
    terms = [{**term, "matchFields": [*(term.get("matchFields") or []), *away]} for term in terms]
    barred = {**(required or {}), "nodeSelectorTerms": terms}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**by_node, _REQUIRED: barred}}}
