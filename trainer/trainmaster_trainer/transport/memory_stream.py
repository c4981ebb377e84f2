"""Stream bytes through memory between two peers of one host: there are two rings of slots, one for each direction.

The caller makes the memory and offers it in the first message after the handshake; the listener opens it, or refuses,
and then everything goes over the socket as between hosts. The socket stays open in any case: it tells when the other
process has ended.

A ring is the bounded buffer of Dijkstra (1965): a semaphore counts the slots that are written, another those that are
free. A slot says how many bytes are in it, so a small message is one slot and wakes its reader once, and a big one is
written and read at the same time. Loopback TCP copies as often, but wakes both sides many times, in the kernel's pace.
"""

from __future__ import annotations

import ctypes
import math
import socket
import struct
import time
from collections.abc import Sequence

from typing_extensions import override

from trainmaster_trainer.shared_memory import semaphores
from trainmaster_trainer.shared_memory.segment import Segment
from trainmaster_trainer.shared_memory.semaphores import Semaphore
from trainmaster_trainer.transport.frame import BadFrameError
from trainmaster_trainer.transport.stream import Stream, close

CHUNK, SLOTS = 1 << 20, 3  # 6 MiB of memory for a connection; each slot may cost two changes of process
TRIES = 5  # a peer computes for longer than it pays to look again and again
_HEAD = 64  # a slot begins with the number of bytes in it, in a cache line of its own
_FIRST_SLOT = 2 * semaphores.SIZE
_RING = _FIRST_SLOT + SLOTS * (_HEAD + CHUNK)
SIZE = 2 * _RING
_length = struct.Struct("<Q")
_BIG = 1 << 16  # from here on, letting go of the interpreter's lock costs less than holding it


class _Ring:
    """_Ring is one direction: its memory, the present slot, and the position in that slot."""

    def __init__(self, segment: Segment, first: int) -> None:
        self.view = segment.view[first : first + _RING]
        self.address = segment.address + first
        self.full = Semaphore(self.address)
        self.free = Semaphore(self.address + semaphores.SIZE)
        self._number = 0
        self.at = 0  # bytes of the slot that are done
        self.size = 0  # bytes that are in it, for who reads

    @property
    def slot(self) -> int:
        """Return where the head of the present slot is."""
        return _FIRST_SLOT + self._number * (_HEAD + CHUNK)

    @property
    def place(self) -> int:
        """Return where the next byte is."""
        return self.slot + _HEAD + self.at

    def turn(self) -> None:
        """Go on to the next slot."""
        self._number = (self._number + 1) % SLOTS
        self.at = self.size = 0


def prepare_rings(segment: Segment) -> None:
    """Make the semaphores, before the peer sees them."""
    for first in (0, _RING):
        ring = _Ring(segment, first)
        ring.full.create(0)
        ring.free.create(SLOTS)


class MemoryStream(Stream):
    """MemoryStream moves bytes through a segment's two rings. Nothing more is sent on `connected`, the socket."""

    room = SLOTS * CHUNK

    def __init__(self, connected: socket.socket, segment: Segment, is_caller: bool) -> None:
        self._socket = connected
        self._segment = segment  # its memory lives as long as this
        self._out, self._in = (_Ring(segment, 0 if is_caller == out else _RING) for out in (True, False))
        self._timeout = math.inf
        self._closed = False

    @override
    def set_timeout(self, seconds: float) -> None:
        self._timeout = seconds or math.inf

    @override
    def write(self, pieces: Sequence[memoryview]) -> None:
        for piece in pieces:
            self._write(piece)
        if self._out.at:
            self._publish()

    def _write(self, piece: memoryview) -> None:
        ring, done = self._out, 0
        while done < len(piece):
            if not ring.at:
                self._wait(ring.free)
            size = min(len(piece) - done, CHUNK - ring.at)
            _copy(ring.view, ring.place, piece, done, size)
            ring.at += size
            done += size
            if ring.at == CHUNK:
                self._publish()

    def _publish(self) -> None:
        ring = self._out
        _length.pack_into(ring.view, ring.slot, ring.at)
        ring.turn()
        ring.full.post()

    @override
    def read(self, size: int) -> bytes:
        data = bytearray(size)
        self.fill(memoryview(data))
        return bytes(data)

    @override
    def fill(self, view: memoryview) -> None:
        ring, done = self._in, 0
        while done < len(view):
            if not ring.size:
                self._wait(ring.full)
                (length,) = _length.unpack_from(ring.view, ring.slot)
                if not 0 < length <= CHUNK:
                    raise BadFrameError(f"a slot of {length} bytes")
                ring.size = int(length)
            size = min(len(view) - done, ring.size - ring.at)
            _copy(view, done, ring.view, ring.place, size)
            ring.at += size
            done += size
            if ring.at == ring.size:
                ring.turn()
                ring.free.post()

    def _wait(self, semaphore: Semaphore) -> None:
        if not semaphore.try_wait(TRIES):
            self._sleep(semaphore, time.monotonic() + self._timeout)
        if self._closed:
            raise ConnectionResetError("closed")

    def _sleep(self, semaphore: Semaphore, deadline: float) -> None:
        while not semaphore.sleep():
            if self._closed or self._has_hung_up():
                if semaphore.try_wait(1):
                    return  # it was written before
                raise ConnectionResetError("the peer went away")
            if time.monotonic() > deadline:
                raise TimeoutError("the peer says nothing")

    def _has_hung_up(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @override
    def close(self) -> None:
        self._closed = True
        close(self._socket)


def _copy(into: memoryview, place: int, source: memoryview, begin: int, size: int) -> None:
    if size < _BIG or into.readonly or source.readonly:
        into[place : place + size] = source[begin : begin + size]
    else:
        ctypes.memmove(_address(into) + place, _address(source) + begin, size)


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
