"""Write event files for TensorBoard: records of protobuf messages, each with a masked CRC-32C of length and content.

After a resume, a record says that the session began anew at a step: TensorBoard drops what later steps had before.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from trainmaster.wire.files import open_to_write, write_all

from trainmaster_trainer.trackers import protobuf
from trainmaster_trainer.trackers.points import Point, TrackedJob

FOLDER = "tensorboard"
_START = 1  # of SessionLog.SessionStatus
_DT_STRING = 7
_POLYNOMIAL = 0x82F63B78


class EventFiles:
    """EventFiles has one file of its own: each follower begins another one in the same folder, as TensorBoard reads."""

    def __init__(self, subject: TrackedJob) -> None:
        self._subject = subject
        self._folder: Path = subject.home / subject.options.get("folder", FOLDER)
        self._descriptor = -1

    def begin(self, run: str) -> str:
        """Open a file of a new name in the folder, with the parameters in it where the run is new."""
        self._folder.mkdir(parents=True, exist_ok=True)
        moment = time.time()
        # Files are read in the order of their names; two of a second are told apart by what comes after it.
        name = f"events.out.tfevents.{moment:.0f}.{self._subject.name}.{time.time_ns() % 10**9:09}.{os.getpid()}"
        self._descriptor = open_to_write(self._folder / name, os.O_APPEND | os.O_CREAT | os.O_EXCL)
        data = _record(_event(moment, None, protobuf.text(3, "brain.Event:2")))
        if not run:  # what else is in the folder is of no run, or of one that is told anew
            data += _begins_anew(0)
            lines = [f"| {name} | {value} |" for name, value in self._subject.parameters.items()]
            data += _record(_event(moment, 0, _text("parameters", "\n".join(["| name | value |", "|-|-|", *lines]))))
        self._write(data)
        return str(self._folder)

    def cut(self, step: int) -> None:
        """Have TensorBoard drop what it has of later steps."""
        self._write(_begins_anew(step + 1))

    def tell(self, points: Sequence[Point]) -> None:
        """Write the figures."""
        self._write(b"".join(_record(_event(one.time, one.step, _scalars(one))) for one in points if one.figures))

    def restarted(self, point: Point) -> None:
        """Write a text."""
        said = f"Attempt {point.attempt} began with step {point.step}."
        self._write(_record(_event(point.time, point.step, _text("restarts", said))))

    def finish(self, end: str) -> None:  # noqa: ARG002 TensorBoard knows of no end
        """Bring what is written to the disk."""
        os.fsync(self._descriptor)

    def _write(self, data: bytes) -> None:
        """Write all of it or, as on a full disk, nothing."""
        size = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, memoryview(data))
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise


def _begins_anew(step: int) -> bytes:
    """Return the record at which TensorBoard drops what it has of this step and later ones."""
    return _record(_event(time.time(), step, protobuf.message(7, protobuf.varint(1, _START))))


def _event(moment: float, step: int | None, content: bytes) -> bytes:
    return protobuf.double(1, moment) + (b"" if step is None else protobuf.varint(2, step)) + content


def _scalars(point: Point) -> bytes:
    values = [
        protobuf.message(1, protobuf.text(1, name), protobuf.float32(2, value)) for name, value in point.figures.items()
    ]
    return protobuf.message(5, *values)


def _text(tag: str, words: str) -> bytes:
    shape = protobuf.message(2, protobuf.message(2, protobuf.varint(1, 1)))
    tensor = protobuf.message(8, protobuf.varint(1, _DT_STRING), shape, protobuf.text(8, words))
    plugin = protobuf.message(9, protobuf.message(1, protobuf.text(1, "text")))
    return protobuf.message(5, protobuf.message(1, protobuf.text(1, tag), plugin, tensor))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_entry(number) for number in range(256)]
