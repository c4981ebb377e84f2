"""Lay one piece of a pod over another. It is pure.

It works like Kubernetes' strategic merge: objects are merged member by member; lists whose items have a name are merged
by it; other lists are replaced. The piece above wins.
"""

from collections.abc import Mapping
from typing import Any

# The lists that are merged: by which member items are told apart, and whether two of one name are merged themselves.
# (Two volumes or variables of one name are not, because each has one source only.)
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
    """Return `above` laid over `below`. Neither is changed."""
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
        return _added(below, above)
    if name not in _MERGED:
        return above
    key, deep = _MERGED[name]
    merged = {_name(item, key): item for item in below if _name(item, key) is not None}
    for item in above:
        own = _name(item, key)
        if own is not None:
            merged[own] = lay(merged[own], item) if deep and own in merged else item
    nameless = ([item for item in items if _name(item, key) is None] for items in (below, above))
    return [*merged.values(), *_added(*nameless)]


def _added(below: list[Any], above: list[Any]) -> list[Any]:
    return [*(item for item in below if item not in above), *above]


def _name(item: Any, key: str) -> str | int | None:
    """Return the member that tells an item apart; None where it is missing or neither text nor number."""
    name = item.get(key) if isinstance(item, Mapping) else None
    return name if isinstance(name, str | int) else None
