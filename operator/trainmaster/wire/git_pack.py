"""Read a pack of git objects: each is known by the SHA-1 of its content, so none can be exchanged on the way.

The format is that of git's own documentation (gitformat-pack). Standard library only; nothing is run.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Dict, List, NamedTuple, Tuple, Union

from trainmaster.wire.bundle import MOST_UNPACKED, BundleError

MOST_OBJECTS = 100_000
_MOST_BYTES = 2 * MOST_UNPACKED  # of all objects together: files, folders and commits
_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET_DELTA, _NAMED_DELTA = 6, 7
_NAME = 20  # bytes
_COPY_ALL = 0x10000


class Object(NamedTuple):
    """An object of git: its kind, and its content."""

    kind: bytes
    data: bytes


class _Delta(NamedTuple):
    """A delta is what changes another object, which is named by its place in the pack or by its name."""

    base: Union[int, bytes]
    data: bytes


def objects(pack: bytes) -> Dict[str, Object]:
    """Return the objects of a pack by their names, 40 hexadecimal digits.

    Raises:
        BundleError: it is damaged, or has more than code may have.
    """
    if len(pack) < 12 + _NAME or pack[:4] != b"PACK" or hashlib.sha1(pack[:-_NAME]).digest() != pack[-_NAME:]:  # noqa: S324
        raise BundleError("the pack that the server sent is damaged")
    number = int.from_bytes(pack[8:12], "big")
    if number > MOST_OBJECTS:
        raise BundleError(f"the commit has {number:,} objects, and code has at most {MOST_OBJECTS:,}")
    try:
        return _PackReader(memoryview(pack)[:-_NAME]).all(number)
    except (IndexError, zlib.error, RecursionError) as error:
        raise BundleError(f"the pack that the server sent is damaged: {error}") from None


class _PackReader:
    """_PackReader goes through a pack once, then applies the deltas."""

    def __init__(self, pack: memoryview) -> None:
        self._pack, self._at, self._room = pack, 12, _MOST_BYTES
        self._whole: Dict[int, Object] = {}
        self._deltas: Dict[int, _Delta] = {}
        self._named: Dict[str, Object] = {}

    def all(self, number: int) -> Dict[str, Object]:
        for _ in range(number):
            self._read_one()
        for found in self._whole.values():
            self._name(found)
        while self._deltas:
            ready = [place for place, delta in self._deltas.items() if self._base(delta) is not None]
            if not ready:
                raise BundleError("the pack that the server sent changes objects that are not in it")
            for place in ready:
                delta = self._deltas.pop(place)
                base = self._base(delta)
                assert base is not None  # noqa: S101  it was there
                self._whole[place] = Object(base.kind, self._within(_applied(base.data, delta.data)))
                self._name(self._whole[place])
        return self._named

    def _base(self, delta: _Delta) -> Union[Object, None]:
        return self._whole.get(delta.base) if isinstance(delta.base, int) else self._named.get(delta.base.hex())

    def _name(self, found: Object) -> None:
        header = b"%s %d\0" % (found.kind, len(found.data))
        self._named[hashlib.sha1(header + found.data).hexdigest()] = found  # noqa: S324  as git names it

    def _read_one(self) -> None:
        place = self._at
        first = self._byte()
        kind, size, shift = (first >> 4) & 7, first & 15, 4
        while first & 0x80:
            first = self._byte()
            size |= (first & 0x7F) << shift
            shift += 7
        if kind == _OFFSET_DELTA:
            self._deltas[place] = _Delta(place - self._distance(), self._inflated(size))
        elif kind == _NAMED_DELTA:
            base = bytes(self._pack[self._at : self._at + _NAME])
            self._at += _NAME
            self._deltas[place] = _Delta(base, self._inflated(size))
        elif kind in _KINDS:
            self._whole[place] = Object(_KINDS[kind], self._inflated(size))
        else:
            raise BundleError(f"the pack that the server sent has an object of an unknown kind, {kind}")

    def _byte(self) -> int:
        self._at += 1
        return self._pack[self._at - 1]

    def _distance(self) -> int:
        byte = self._byte()
        value = byte & 0x7F
        while byte & 0x80:
            byte = self._byte()
            value = ((value + 1) << 7) | (byte & 0x7F)
        return value

    def _inflated(self, size: int) -> bytes:
        if size > self._room:
            raise BundleError(f"the commit has more than {MOST_UNPACKED >> 20} MiB")
        stream, parts, left = zlib.decompressobj(), [], size + 1
        while not stream.eof:
            chunk = self._pack[self._at : self._at + size + size // 1000 + 128]
            if not chunk:
                raise IndexError("it is cut off")
            parts.append(stream.decompress(chunk, max(1, left)))
            left -= len(parts[-1])
            self._at += len(chunk) - len(stream.unused_data) - len(stream.unconsumed_tail)
            if left <= 0:
                raise IndexError("an object is larger than it says")
        if left != 1:
            raise IndexError("an object is smaller than it says")
        return self._within(b"".join(parts))

    def _within(self, data: bytes) -> bytes:
        self._room -= len(data)
        if self._room < 0:
            raise BundleError(f"the commit has more than {MOST_UNPACKED >> 20} MiB")
        return data


def _applied(base: bytes, delta: bytes) -> bytes:
    """Return the object that a delta makes of another: copies out of it, and bytes of its own."""
    before, at = _length(delta, 0)
    after, at = _length(delta, at)
    if before != len(base) or after > _MOST_BYTES:
        raise IndexError("a delta fits no object")
    parts: List[bytes] = []
    length = 0
    while at < len(delta) and length <= after:
        part, at = _step(base, delta, at)
        parts.append(part)
        length += len(part)
    if length != after:
        raise IndexError("a delta makes another length than it says")
    return b"".join(parts)


def _step(base: bytes, delta: bytes, at: int) -> Tuple[bytes, int]:
    command, at = delta[at], at + 1
    if not command & 0x80:
        if not command:
            raise IndexError("a delta has an empty step")
        return delta[at : at + command], at + command
    offset = size = 0
    for bit in range(7):
        if command & (1 << bit):
            value, at = delta[at], at + 1
            offset, size = (offset | value << 8 * bit, size) if bit < 4 else (offset, size | value << 8 * (bit - 4))  # noqa: PLR2004
    return base[offset : offset + (size or _COPY_ALL)], at


def _length(delta: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = delta[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
