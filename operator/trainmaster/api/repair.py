"""Reading what may be partly rubbish: keep what is valid, drop the rest, and know what was dropped.

Used for `.status` (anybody may have edited it) and by `api/document.py` (to find the other problems of a bad file).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]

_ROUNDS = 24  # every round drops a level at least, and nothing of ours is nested deeper


def keep_valid(model: type[M], data: Any) -> tuple[M | None, list[ErrorDetails]]:
    """The model of all that is valid in `data`, and what was wrong with the rest (None if nothing is left)."""
    plain = copy.deepcopy(dict(data)) if isinstance(data, Mapping) else data
    found: list[ErrorDetails] = []
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(plain, by_alias=True, by_name=False), found
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
        found.extend(details)
        dropped = [_drop(plain, location) for location in _locations(details)]
        if not any(dropped):
            break
    return None, found


def _locations(details: list[ErrorDetails]) -> list[Location]:
    """What to drop, the last items of lists first, so that the places of the others still hold."""
    places = {detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"] for detail in details}
    return sorted(places, key=lambda place: tuple((isinstance(part, int), part) for part in place), reverse=True)


def _drop(plain: Any, location: Location) -> bool:
    """Remove the deepest thing on this way that is really there."""
    holder, key = None, None
    current = plain
    for part in location:
        if not _has(current, part):
            break  # pydantic's own words for arms of a union and for keys
        holder, key, current = current, part, current[part]
    if holder is None:
        return False
    del holder[key]
    return True


def _has(container: Any, part: int | str) -> bool:
    if isinstance(container, dict):
        return part in container
    return isinstance(container, list) and isinstance(part, int) and part < len(container)
