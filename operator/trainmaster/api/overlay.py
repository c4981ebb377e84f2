"""Lay one piece of a pod over another, and tell what would be lost by that. It is pure.

It works like Kubernetes' strategic merge: objects are merged member by member; lists whose items have a name are merged
by it; other lists are replaced. The piece above wins.
"""

import posixpath
from collections.abc import Iterator, Mapping
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


def lost(below: Any, above: Any, name: str = "") -> Iterator[tuple[str | int, ...]]:
    """Yield the places in `below` that `above` says again and otherwise, so that `lay` drops what is there."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        for key in below:
            if key in above:
                yield from ((key, *place) for place in lost(below[key], above[key], key))
    elif isinstance(below, list) and isinstance(above, list) and name in {*_MERGED, *_APPENDED}:
        yield from _lost_items(below, above, name)
    elif _said(below) != _said(above):
        yield ()


def _lost_items(below: list[Any], above: list[Any], name: str) -> Iterator[tuple[str | int, ...]]:
    key, deep = _MERGED.get(name, ("", False))
    again = {own: item for item in above if (own := _name(item, key)) is not None}
    for index, item in enumerate(below):
        own = _name(item, key)
        if own not in again:
            continue
        if deep:
            yield from ((index, *place) for place in lost(item, again[own]))
        elif _said({**item, key: own}) != _said({**again[own], key: own}):
            yield (index,)


def _said(value: Any) -> Any:
    """Return the value without members that say what Kubernetes assumes anyway: nothing, no, or an empty text."""
    if isinstance(value, Mapping):
        return {key: _said(item) for key, item in value.items() if item not in (None, False, "")}
    return [_said(item) for item in value] if isinstance(value, list) else value


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
    if key == "mountPath" and isinstance(name, str):
        return posixpath.normpath(name)  # the same folder, with a slash at its end or without
    return name if isinstance(name, str | int) else None
