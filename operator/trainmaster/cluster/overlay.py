"""One piece of a pod laid over another: pure.

Like Kubernetes' strategic merge: objects are merged member by member; lists whose items have a name are merged by
it; other lists are replaced. What stands above wins. Called by `manifests`, with our defaults at the bottom, the
user's template over them, and what the job's spec names on top.
"""

from collections.abc import Mapping
from typing import Any

# Lists that are merged: by which member items are told apart, and whether two of one name are merged themselves.
# (A volume or a variable has one source only: half of one and half of another would be none.)
_MERGED = {
    "containers": ("name", True),
    "initContainers": ("name", True),
    "ephemeralContainers": ("name", True),
    "env": ("name", False),
    "volumes": ("name", False),
    "volumeMounts": ("mountPath", False),
    "volumeDevices": ("devicePath", False),
    "imagePullSecrets": ("name", False),
    "ports": ("containerPort", False),
    "hostAliases": ("ip", False),
    "resourceClaims": ("name", False),
    "claims": ("name", False),
}
_APPENDED = frozenset({"tolerations", "envFrom", "schedulingGates"})


def lay(below: Any, above: Any, name: str = "") -> Any:
    """`above` over `below`; neither is changed."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {key: _member(below, above, key) for key in [*below, *(key for key in above if key not in below)]}
    if isinstance(below, list) and isinstance(above, list):
        return _lists(below, above, name)
    return above


def _member(below: Mapping[str, Any], above: Mapping[str, Any], key: str) -> Any:
    if key not in above:
        return below[key]
    return lay(below[key], above[key], key) if key in below else above[key]


def _lists(below: list[Any], above: list[Any], name: str) -> list[Any]:
    if name in _APPENDED:
        return [*(item for item in below if item not in above), *above]
    if name not in _MERGED:
        return above
    key, deep = _MERGED[name]
    merged = {item[key]: item for item in below}
    for item in above:
        merged[item[key]] = lay(merged[item[key]], item) if deep and item[key] in merged else item
    return list(merged.values())
