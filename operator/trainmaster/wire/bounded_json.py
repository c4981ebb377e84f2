"""Parse JSON of files that others may have written, with bounds on what it may cost to read.

A megabyte of JSON can make 25 MB of objects, and a number in it can be infinite or have thousands of digits.
"""

from __future__ import annotations

import json
import math
from typing import Any

DOCUMENT_BYTES = 4 << 20  # an API server takes 1.5 MiB
_DOCUMENT_VALUES = 50_000
_DOCUMENT_OBJECTS = 10_000
_MOST_NUMBER = 1 << 63
LARGEST_COUNT = 1 << 53  # of steps, samples, attempts: beyond it, readers of JSON disagree


def document(text: bytes) -> Any:
    """Return what a status says, or another document of a job. It may have come through other programs.

    Raises:
        ValueError: it is no JSON, or larger than any of them.
    """
    if len(text) > DOCUMENT_BYTES:
        raise ValueError(f"it has more than {DOCUMENT_BYTES} bytes")
    return parse(text, _DOCUMENT_VALUES, _DOCUMENT_OBJECTS, ascii_only=False)


def parse(text: bytes, most_values: int, most_objects: int, *, ascii_only: bool = True) -> Any:
    """Return the values in a JSON text.

    Raises:
        ValueError: it is no JSON, or has more values or objects than that, or a number that is none or too large.
    """
    if ascii_only and not text.isascii():  # ours is; and one letter that is not makes the text four times as large
        raise ValueError("it has letters that are not ASCII")
    if text.count(b",") > most_values or text.count(b"{") > most_objects or text.count(b"[") > 2 * most_objects:
        raise ValueError("it has more values than any of ours")
    try:
        return json.loads(text, parse_constant=finite, parse_float=finite, parse_int=_small)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def finite(text: str) -> float:
    """Return the number that this text is.

    Raises:
        ValueError: it is too large for a float, or NaN or Infinity: Python's json takes these, JSON does not have them.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is {'too large' if text[-1].isdigit() else 'no number of JSON'}")
    return number


def _small(digits: str) -> int:
    number = int(digits) if len(digits) <= 20 else _MOST_NUMBER  # noqa: PLR2004 (digits of 64 bits, and a sign)
    if not -_MOST_NUMBER < number < _MOST_NUMBER:
        raise ValueError(f"{digits:.40} is too large")
    return number
