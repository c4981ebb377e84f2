"""Reading what may be partly rubbish: keep what is valid, drop the rest, and know what was dropped.

Used for `.status` (anybody may have edited it) and by `api/document.py` (to find the other problems of a bad file).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]

_ROUNDS = 24  # every round drops a level at least, and nothing of ours is nested deeper


class Kept(NamedTuple, Generic[M]):
    """What could be read, what was wrong with the rest, and the places that are therefore not as they were written."""

    model: M | None  # None when nothing is left
    errors: tuple[ErrorDetails, ...]
    dropped: frozenset[Location]


def keep_valid(model: type[M], data: Any) -> Kept[M]:
    """The model of all that is valid in `data`."""
    with contextlib.suppress(ValidationError):  # as a rule nothing is wrong, and nothing need be copied to mend it
        return Kept(model.model_validate(data, by_alias=True, by_name=False), (), frozenset())
    plain = copy.deepcopy(dict(data)) if isinstance(data, Mapping) else data
    errors: tuple[ErrorDetails, ...] = ()
    dropped: set[Location] = set()
    for _ in range(_ROUNDS):
        try:
            return Kept(model.model_validate(plain, by_alias=True, by_name=False), errors, frozenset(dropped))
        except ValidationError as error:
            details = error.errors(include_url=False)
        errors = errors or tuple(details)  # later rounds complain about what was dropped
        now = [place for location in _locations(details) if (place := _drop(plain, location)) is not None]
        dropped.update(now)
        if not now:
            break
    return Kept(None, errors, frozenset(dropped))


def _locations(details: list[ErrorDetails]) -> list[Location]:
    """What to drop, the last items of lists first, so that the places of the others still hold."""
    places = {detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"] for detail in details}
    return sorted(places, key=_list_order, reverse=True)


def _list_order(location: Location) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (-1, part) for part in location)


def _drop(plain: Any, location: Location) -> Location | None:
    """Remove the deepest thing on this way that is really there; its place, or its list's, as the others move up."""
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
    """Whether plain data has this key or index."""
    if isinstance(container, dict):
        return part in container
    return isinstance(container, list) and isinstance(part, int) and part < len(container)
