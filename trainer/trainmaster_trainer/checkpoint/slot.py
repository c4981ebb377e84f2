"""A slot holds one snapshot in memory: a mapped file that a kill during a write leaves marked as unfinished.

    page 0          magic, mark, lengths and checksums
    layout          two lines of JSON, written once: whose it is, and where each tensor lies
    scalars         JSON, written with every snapshot
    tensors         their bytes, 64-byte aligned

The mark is zero while a snapshot is written and its step plus one when it is whole: what a killed process has stored
in a shared mapping stays in the order in which it was stored. What another rank gives (`neighbours.py`) may come later
or not at all, so it has a mark of its own, which counts where it is equal to that of the snapshot.

Pages are reserved beforehand, so a full memory is an error when the slot is made and never a SIGBUS in mid-training.
New pages are what a restart waits for longest, so a slot rather takes over the file of a dead process, at its first
write.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from trainmaster.wire import bounded_json, codec
from trainmaster.wire.files import open_to_read
from trainmaster.wire.manifest import MOST_RANKS

from trainmaster_trainer.checkpoint.parts import Cut
from trainmaster_trainer.checkpoint.pinned import copy_all, pin_for
from trainmaster_trainer.checkpoint.slot_layout import ALIGNED, SlotError, TensorPlace, from_text, to_text
from trainmaster_trainer.checkpoint.state import MODEL, State, dtype_name

__all__ = ["SlotError"]
Signature = tuple[tuple[str, torch.Size, torch.dtype], ...]
Key = tuple[int, int]  # step, attempt: the newest is the largest
_HEAD = struct.Struct("<8sQQQIQIQ")  # magic, mark, length of the layout, room for scalars, checksums and length, mark
_MAGIC = b"TMslot05"
MARK = slice(8, 16)
_SCALARS = slice(36, 48)
_GIVEN = slice(48, 56)  # the mark of what another rank has given
PAGE = 4096
_MOST_TEXT = 1 << 26  # bytes of the layout, and of the scalars
_MOST_OWNER = 1 << 16  # bytes
_POPULATE_WRITE = 23  # madvise(2): all pages of a mapping at once instead of by one fault each


@dataclass(frozen=True)
class Owner:
    """Owner says whose a slot is. Each rank reads it for every slot of its replica, so it must be quick to read."""

    job: str
    attempt: int
    rank: int
    world_size: int
    replicated: bool  # any rank can go on from it
    part: int = 0  # of a state that several ranks of one replica keep together (parts.py)
    parts: int = 1
    dataset: int = 0  # how many samples there were; 0: not known
    carries: int = -1  # the rank whose own part it keeps besides (neighbours.py), once it has it; -1: none
    step: int = -1  # after which what lies there was taken: of this the head of the file tells

    @property
    def key(self) -> Key:
        """Return step and attempt: the newest is the largest."""
        return self.step, self.attempt


class SnapshotSlot:
    """SnapshotSlot is room for one snapshot, and writes it.

    `heir_to`: a file whose pages it takes over if it can. `cuts`: which of the tensors are parts of larger ones.

    Raises:
        OSError: there is not enough memory.
    """

    def __init__(
        self,
        path: Path,
        owner: Owner,
        tensors: Mapping[str, Tensor],
        room: int,
        *,
        heir_to: Path | None = None,
        cuts: Mapping[str, Cut] | None = None,
    ) -> None:
        self.path = path
        self.signature = signature(tensors)
        places, length = _place(tensors, cuts or {})
        layout = codec.encode(owner) + b"\n" + to_text(places)
        self._scalars = PAGE + len(layout)
        self._room = room
        data = _round(self._scalars + room, PAGE)
        self._unwritten = layout
        self._page, is_heir = open_page(path, data + length, heir_to)
        self._heir_to = heir_to if is_heir else None
        self._pinned = pin_for(tensors.values(), self._page, self)
        self._views = [_view(self._page, data, places[name]) for name in tensors]

    @property
    def file(self) -> Tensor:
        """Return the bytes of the whole file as they are in memory, without a copy."""
        return torch.frombuffer(self._page, dtype=torch.uint8)

    def fits(self, tensors: Mapping[str, Tensor], scalars: bytes) -> bool:
        """Return whether this snapshot can be written here."""
        return len(scalars) <= self._room and signature(tensors) == self.signature

    def write(self, step: int, tensors: Mapping[str, Tensor], scalars: bytes) -> None:
        """Replace the snapshot by the state after `step`."""
        self._page[MARK] = bytes(8)
        if self._unwritten:  # until now an inherited file has kept its old snapshot
            layout, self._unwritten = self._unwritten, b""
            if self._heir_to is not None:
                self._heir_to.rename(self.path)
                self._heir_to = None
            self._page[: _HEAD.size] = _HEAD.pack(_MAGIC, 0, len(layout), self._room, zlib.crc32(layout), 0, 0, 0)
            self._page[PAGE : self._scalars] = layout
        copy_all(self._views, list(tensors.values()), pinned=self._pinned)
        self._page[self._scalars : self._scalars + len(scalars)] = scalars
        self._page[_SCALARS] = struct.pack("<QI", len(scalars), zlib.crc32(scalars))
        self._page[MARK] = (step + 1).to_bytes(8, "little")

    def complete(self, name: str, given: Tensor) -> None:
        """Add to the snapshot that lies here what another rank has given for it: `Owner.carries` holds from now on."""
        self._views[[one for one, *_ in self.signature].index(name)].copy_(given)
        self._page[_GIVEN] = self._page[MARK]

    def remove(self) -> None:
        """Delete the file, which frees the memory."""
        self.path.unlink(missing_ok=True)


def open_page(path: Path, length: int, heir_to: Path | None = None) -> tuple[mmap.mmap, bool]:
    """Return writable memory for a file, and whether it is that of `heir_to`, which then lies where it was.

    Raises:
        OSError: there is not enough memory.
    """
    inherited = _inherit(heir_to, length) if heir_to else None
    page = inherited or new_page(path, length)
    with suppress(OSError):  # an older kernel
        page.madvise(_POPULATE_WRITE)
    return page, inherited is not None


def signature(tensors: Mapping[str, Tensor]) -> Signature:
    """Return names, shapes and dtypes, which are equal where one slot can hold both."""
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items())


def size(tensors: Mapping[str, Tensor], room: int) -> int:
    """Return about how many bytes a slot for these takes."""
    return _place(tensors, {})[1] + room + 2 * PAGE


@dataclass(frozen=True)
class Head:
    """Head holds the numbers at the beginning of a file."""

    step: int
    layout_length: int
    room: int
    layout_sum: int
    length: int
    scalars_sum: int
    given: int = 0  # the mark of what another rank has given


@dataclass(frozen=True)
class Snapshot:
    """Snapshot is a whole snapshot that lies in memory."""

    path: Path
    head: Head
    owner: Owner

    def load(self) -> LoadedSnapshot:
        """Return its content: views of private pages, valid as long as they are referenced.

        Raises:
            SlotError: it is not whole any more.
        """
        page, head, layout, text = _read(self.path)
        if head != self.head:
            raise SlotError("it has changed")
        places, scalars = from_text(layout.partition(b"\n")[2], text)
        data = _round(PAGE + head.layout_length + head.room, PAGE)
        tensors = {name: _view(page, data, at) for name, at in places.items()}
        cuts = {name: at.cut for name, at in places.items() if at.cut}
        forms = {name: (at.dtype, at.cut.whole(at.shape) if at.cut else at.shape) for name, at in places.items()}
        model = {name: form for name, form in forms.items() if name.startswith(MODEL)}
        return LoadedSnapshot(tensors, scalars, whole=model, cuts=cuts, owner=self.owner)


@dataclass
class LoadedSnapshot(State):
    """LoadedSnapshot is the content of a snapshot. `cuts`: which of the tensors are parts of larger ones."""

    cuts: dict[str, Cut] = field(default_factory=dict)
    owner: Owner = field(kw_only=True)


def look(path: Path) -> Snapshot:
    """Return the snapshot in a file.

    Raises:
        SlotError: no whole snapshot does.
    """
    _, head, layout, _ = _read(path)
    try:
        owner = codec.from_plain(Owner, bounded_json.parse(layout.partition(b"\n")[0][:_MOST_OWNER], _MOST_OWNER, 1))
    except ValueError as error:
        raise SlotError(str(error)) from None
    if not (0 <= owner.rank < owner.world_size <= MOST_RANKS and 0 <= owner.part < owner.parts <= MOST_RANKS):
        raise SlotError("its rank or its part cannot be")
    if not (0 <= owner.attempt <= bounded_json.LARGEST_COUNT and 0 <= owner.dataset <= bounded_json.LARGEST_COUNT):
        raise SlotError("its attempt or its number of samples cannot be")
    if not -1 <= owner.carries < owner.world_size:
        raise SlotError("the rank that it keeps a part of cannot be")
    carries = owner.carries if head.given == head.step + 1 else -1
    return Snapshot(path, head, replace(owner, carries=carries, step=head.step))


def _read(path: Path) -> tuple[mmap.mmap, Head, bytes, bytes]:
    """Return private memory of what is in a file, the head of it, and the texts of its layout and its scalars."""
    try:
        with os.fdopen(open_to_read(path), "rb", buffering=0) as file:
            page = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, ValueError) as error:  # it may be empty
        raise SlotError(str(error)) from None
    if len(page) < PAGE:
        raise SlotError("it is too short")
    magic, mark, *numbers = _HEAD.unpack(page[: _HEAD.size])
    head = Head(mark - 1, *numbers)
    if magic != _MAGIC or mark == 0:
        raise SlotError("it was being written")
    if max(head.layout_length, head.length) > min(_MOST_TEXT, len(page)) or head.step > bounded_json.LARGEST_COUNT:
        raise SlotError("it names a length or a step that cannot be")
    scalars_at = PAGE + head.layout_length
    layout, scalars = page[PAGE:scalars_at], page[scalars_at : scalars_at + head.length]
    changed = zlib.crc32(layout) != head.layout_sum or zlib.crc32(scalars) != head.scalars_sum
    if head.length > head.room or changed:
        raise SlotError("its content has changed")
    return page, head, layout, scalars


def step_of(path: Path) -> int:
    """Return the step of the snapshot in a file; -1 where none is whole."""
    try:
        return _read(path)[1].step
    except SlotError:
        return -1


def _place(tensors: Mapping[str, Tensor], cuts: Mapping[str, Cut]) -> tuple[dict[str, TensorPlace], int]:
    places, position = {}, 0
    for name, tensor in tensors.items():
        places[name] = TensorPlace(dtype_name(tensor.dtype), tuple(tensor.shape), position, cuts.get(name))
        position = _round(position + tensor.numel() * tensor.element_size(), ALIGNED)
    return places, position


def new_page(path: Path, length: int) -> mmap.mmap:
    """Return writable memory for a new file.

    Raises:
        OSError: there is not enough memory.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, length)
        return mmap.mmap(descriptor, length)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _inherit(path: Path, length: int) -> mmap.mmap | None:
    """Map the file of a process that has ended, if it has this length. None: it has not, or a process has it open.

    A lease is what the kernel grants on a file that no other process can write to any more, by a mapping or otherwise
    (fcntl(2), F_SETLEASE): a late process of an older attempt never reaches what the new one keeps.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_size != length:
            return None
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return mmap.mmap(descriptor, length)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _view(page: mmap.mmap, data: int, at: TensorPlace) -> Tensor:
    dtype: torch.dtype = getattr(torch, at.dtype)
    count = math.prod(at.shape)
    if not count:
        return torch.empty(at.shape, dtype=dtype)
    if data + at.start + count * dtype.itemsize > len(page):
        raise SlotError("a tensor lies outside of the file")
    view = torch.frombuffer(page, dtype=dtype, count=count, offset=data + at.start).view(at.shape)
    if dtype == torch.bool and view.view(torch.uint8).max() > 1:
        raise SlotError("a truth value is neither")
    return view


def _round(number: int, step: int) -> int:
    return -(-number // step) * step
