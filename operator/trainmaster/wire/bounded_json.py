"""Parse JSON of files that others may have written, with bounds on what it may cost to read.

A megabyte of JSON can make 25 MB of objects, and a number in it can be infinite or have thousands of digits.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from typing import Any, Iterator

DOCUMENT_BYTES = 4 << 20  # an API server takes 1.5 MiB
_DOCUMENT_VALUES = 50_000
_DOCUMENT_OBJECTS = 10_000
_MOST_NUMBER = 1 << 63
_AT_ONCE = 4096  # pieces of a text that are compared together
_DEEP = 4  # levels of a document that are encoded one by one, so that no text of all of it is made


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
    check_weight(text, most_values, most_objects)
    try:
        return json.loads(text, parse_constant=finite, parse_float=finite, parse_int=_small)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def check_weight(text: bytes, most_values: int, most_objects: int) -> None:
    """Check that no more can come out of a JSON text.

    Raises:
        ValueError: it may have more values or objects than that.
    """
    if text.count(b",") > most_values or text.count(b"{") > most_objects or text.count(b"[") > 2 * most_objects:
        raise ValueError("it has more values than any of ours")


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


def sha256(plain: Any) -> str:
    """Return the hash of the canonical form, as `codec.encode` makes it, without building that form as a whole."""
    digest = hashlib.sha256()
    for piece in _pieces(plain, _DEEP):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(plain: Any, levels: int) -> Iterator[str]:
    if levels == 0 or not isinstance(plain, (dict, list)):
        yield json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return
    is_dict = isinstance(plain, dict)
    yield "{" if is_dict else "["
    for number, member in enumerate(sorted(plain) if is_dict else plain):
        yield "," if number else ""
        if is_dict:
            yield f"{json.dumps(member)}:"
        yield from _pieces(plain[member] if is_dict else member, levels - 1)
    yield "}" if is_dict else "]"


def is_as_written(plain: Any, text: bytes) -> bool:
    """Return whether the text is exactly the form in which we write documents: sorted, and indented by one."""
    position = 0
    chunks = json.JSONEncoder(sort_keys=True, indent=1).iterencode(plain)
    while data := "".join(itertools.islice(chunks, _AT_ONCE)).encode():
        if text[position : position + len(data)] != data:
            return False
        position += len(data)
    return position == len(text)
