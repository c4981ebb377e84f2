"""Read data that may be partly invalid: keep what is valid, drop the rest, and tell what was dropped.

`.status` is read in this way (users may have edited it), and so is a bad file, to find its other problems.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

M = TypeVar("M")
Location = tuple[int | str, ...]

_ROUNDS = 24  # every round drops a level at least, and nothing of ours is nested deeper


class Kept(NamedTuple, Generic[M]):
    """Hold the valid part of some data, the errors in the rest, and the places where something was dropped."""

    model: M | None  # None when nothing is left
    errors: tuple[ErrorDetails, ...]
    dropped: frozenset[Location]


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def adapter(model: type[M]) -> TypeAdapter[M]:
    """Return what reads and writes a model, be it a `BaseModel` or a dataclass."""
    if model not in _ADAPTERS:
        _ADAPTERS[model] = TypeAdapter(model)
    return _ADAPTERS[model]


def keep_valid(model: type[M], data: Any) -> Kept[M]:
    """Return the model of all that is valid in `data`."""
    with contextlib.suppress(ValidationError):  # as a rule nothing is wrong, and nothing need be copied to mend it
        return Kept(adapter(model).validate_python(data, by_alias=True, by_name=False), (), frozenset())
    plain = copy.deepcopy(dict(data)) if isinstance(data, Mapping) else data
    errors: tuple[ErrorDetails, ...] = ()
    dropped: set[Location] = set()
    for _ in range(_ROUNDS):
        try:
            return Kept(adapter(model).validate_python(plain, by_alias=True, by_name=False), errors, frozenset(dropped))
        except ValidationError as error:
            details = error.errors(include_url=False)
        errors = errors or tuple(details)  # later rounds complain about what was dropped
        now = [place for location in _locations(details) if (place := _drop(plain, location)) is not None]
        dropped.update(now)
        if not now:
            break
    return Kept(None, errors, frozenset(dropped))


def _locations(details: list[ErrorDetails]) -> list[Location]:
    """Return the places to drop, the last items of lists first, so that the indices of the others stay right."""
    places = {detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"] for detail in details}
    return sorted(places, key=_list_order, reverse=True)


def _list_order(location: Location) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (-1, part) for part in location)


def _drop(plain: Any, location: Location) -> Location | None:
    """Remove the deepest existing value on this way, and return its place, or its list's, whose other items move up."""
    holders: list[tuple[Any, int | str]] = []
    current = plain
    for part in location:
        if not has_member(current, part):
            break  # pydantic's own words for arms of a union and for keys
        holders.append((current, part))
        current = current[part]
    if not holders:
        return None
    holder, key = holders[-1]
    del holder[key]
    place = location[: len(holders)]
    return place[:-1] if isinstance(key, int) else place


def has_member(container: Any, part: int | str) -> bool:
    """Return whether plain data has this key or index."""
    if isinstance(container, dict):
        return part in container
    return isinstance(container, list) and isinstance(part, int) and part < len(container)
