"""Encode messages of protobuf by hand: those of event files and of OTLP are small, fixed and public.

A message is the bytes of its fields one after the other; see protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(field: int, value: int) -> bytes:
    """Return a field of type int64, uint64, bool or enum."""
    return _number(field << 3 | _VARINT) + _number(value & (1 << 64) - 1)


def double(field: int, value: float) -> bytes:
    """Return a field of type double."""
    return _number(field << 3 | _FIXED64) + struct.pack("<d", value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field of type fixed64."""
    return _number(field << 3 | _FIXED64) + struct.pack("<Q", value)


def float32(field: int, value: float) -> bytes:
    """Return a field of type float; what is too large for it is infinite."""
    try:
        return _number(field << 3 | _FIXED32) + struct.pack("<f", value)
    except OverflowError:
        return _number(field << 3 | _FIXED32) + struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def text(field: int, value: str) -> bytes:
    """Return a field of type string."""
    return message(field, value.encode())


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that is a message (of these parts), or bytes."""
    content = b"".join(parts)
    return _number(field << 3 | _BYTES) + _number(len(content)) + content


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 seven bits of each byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
