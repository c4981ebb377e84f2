"""Write and parse the layout of a slot: where each tensor lies, every number of it checked before it is used."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.wire import bounded_json
from trainmaster.wire.manifest import DTYPES, MOST_DIMENSIONS, MOST_TENSORS, MOST_VALUES

from trainmaster_trainer.checkpoint.parts import Cut

ALIGNED = 64
_MOST_NUMBER = 1 << 50


class SlotError(Exception):
    """A file is no whole snapshot; the message says why."""


@dataclass(frozen=True)
class TensorPlace:
    """TensorPlace says where a tensor lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    cut: Cut | None = None  # what part of a larger one it is


def to_text(places: Mapping[str, TensorPlace]) -> bytes:
    """Return the layout as it is written."""
    rows = {name: (at.dtype, at.shape, at.start, at.cut) for name, at in places.items()}
    return json.dumps(rows, separators=(",", ":")).encode()


def from_text(layout: bytes, scalars: bytes) -> tuple[dict[str, TensorPlace], dict[str, Any]]:
    """Parse layout and scalars. With thousands of tensors a general decoder would take most of a restart's time."""
    try:
        plain: dict[str, Any] = bounded_json.parse(scalars, MOST_VALUES, MOST_TENSORS)
        places = {
            name: TensorPlace(dtype, tuple(shape), start, Cut(*cut) if cut else None)
            for name, (dtype, shape, start, cut) in bounded_json.parse(layout, MOST_VALUES, MOST_TENSORS).items()
        }
        plain.items()
    except (TypeError, ValueError, AttributeError) as error:
        raise SlotError(f"its layout or its scalars cannot be read: {error}") from None
    for at in places.values():
        numbers, cut = [at.start, *at.shape, *(at.cut or ())], at.cut
        # None is negative, or beyond any file's size.
        is_possible = all(type(one) is int and 0 <= one <= _MOST_NUMBER for one in numbers) and (
            at.dtype in DTYPES
            and len(at.shape) <= MOST_DIMENSIONS
            and at.start % ALIGNED == 0
            and math.prod(max(one, 1) for one in at.shape) <= _MOST_NUMBER
            and (cut is None or (cut.dimension < len(at.shape) and cut.begin + at.shape[cut.dimension] <= cut.length))
        )
        if not is_possible:
            raise SlotError("its layout has a tensor that cannot be")
    return places, plain
