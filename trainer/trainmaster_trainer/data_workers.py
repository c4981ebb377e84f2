"""Data workers: processes of a rank that make its batches ahead of the step, through torch's DataLoader.

They change nothing but the time: which samples make a batch is decided in the rank (`data.py`), and a batch follows
from (seed, step, share), whoever makes it (`making.py`). What was made ahead and is not taken, since the training went
back or the share became another one, is thrown away.

They are forked from the rank, before it has a model: what a fork shares with the rank is copied as soon as the rank
writes to it. A data worker lives no longer than its rank, however that ends, and leaves nothing behind: batches travel
in memory without a name (decision 0169).
"""

from __future__ import annotations

import itertools
import mmap
import multiprocessing.util
import os
import pickle
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import signal_handling
from typing_extensions import override

from trainmaster_trainer.agent import process, rank_errors
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.making import Maker
from trainmaster_trainer.streams import StreamMaker
from trainmaster_trainer.structure import each_tensor

if TYPE_CHECKING:
    from trainmaster_trainer.data import Share

    _Key = tuple[int, int, Share, str | None]  # the last: where a stream began

_COUNTER = 8  # bytes
_END_SECONDS = 2.0  # for a killed process that is stuck in the kernel
_LONGEST_FOLDER = 72  # characters: the names of sockets have room for 107


@dataclass(frozen=True)
class Ahead:
    """Ahead says how many data workers a rank has, how many batches each makes ahead, and where files may lie."""

    workers: int = 0
    prefetch: int = 2
    folder: Path | None = None  # which the agent removes after the attempt; None: the system's


class DataWorkers:
    """DataWorkers is the data workers of a rank. `last` is the last step of the training; None: it is not known."""

    def __init__(
        self,
        maker: Maker | StreamMaker,
        ahead: Ahead,
        last: int | None,
        *,
        pinned: bool,
        sockets: frozenset[int] = frozenset(),
    ) -> None:
        _choose_folder(ahead.folder)
        self._upcoming = _Upcoming(last)
        # Whoever asks for more processes than there are cores has samples that wait for something else.
        warnings.filterwarnings("ignore", "This DataLoader will create")
        self._loader = DataLoader(
            _Made(maker, self._upcoming),
            batch_size=None,
            sampler=self._upcoming,
            num_workers=ahead.workers,
            prefetch_factor=ahead.prefetch,
            collate_fn=_as_it_is,
            persistent_workers=True,
            pin_memory=pinned,
            worker_init_fn=partial(_begin, os.getpid(), sockets),
            multiprocessing_context="fork",
            generator=torch.Generator(),  # else it would draw from torch's global one
        )
        self._batches: Any = iter(self._loader)  # the processes start here, and wait to hear of the first step
        self._next: tuple[int, Share] | None = None

    def take(self, step: int, share: Share, start: str | None = None) -> Any:
        """Return what the maker makes for this step and share, which was mostly made before.

        Raises:
            Exception: what a data worker raised while it made this batch.
        """
        if (step, share) != self._next:
            self._upcoming.begin(step, share, start)
            self._batches = iter(self._loader)  # what was made ahead is thrown away
        self._next = (step + 1, share)
        made = next(self._batches)
        if isinstance(made, DataWorkerFailure):
            raise made.error() from _WorkerTraceback(made.trace)
        return made

    def close(self) -> None:
        """End the processes at once: they have nothing to bring home, and one may be in a sample that never comes."""
        iterator, self._batches = self._batches, None
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # noqa: SLF001 no accident
        iterator._shutdown = True  # noqa: SLF001 nobody is left who would answer
        for worker in iterator._workers:  # noqa: SLF001 torch itself ends them, but waits for each up to 5 s
            worker.kill()
        for worker in iterator._workers:  # noqa: SLF001 as above
            worker.join(_END_SECONDS)


class _Upcoming:
    """The steps that are likely to be taken next: one after the other, with the same share."""

    def __init__(self, last: int | None) -> None:
        self._last = last
        self._newest = mmap.mmap(-1, _COUNTER)  # shared with the data workers
        self._begun = 0
        self._keys: Iterator[_Key] = iter(())

    def begin(self, step: int, share: Share, start: str | None) -> None:
        """Go on from this step, with this share, from now on. `start`: from which place of a stream training went."""
        self._begun += 1
        self._newest[:] = self._begun.to_bytes(_COUNTER, "little")
        steps = itertools.count(step) if self._last is None else range(step, max(step, self._last) + 1)
        self._keys = ((self._begun, number, share, start) for number in steps)

    def __iter__(self) -> Iterator[_Key]:
        return self._keys

    def holds(self, begun: int) -> bool:
        """Return whether what was asked for under this number is still wanted. Data workers call it."""
        return int.from_bytes(self._newest[:], "little") == begun


class _Made(Dataset[Any]):
    """The dataset of the DataLoader: its items are whole batches, and their keys steps with shares."""

    def __init__(self, maker: Maker | StreamMaker, upcoming: _Upcoming) -> None:
        self._maker, self._upcoming = maker, upcoming

    @override
    def __getitem__(self, key: Any) -> Any:
        begun, step, share, start = key
        if not self._upcoming.holds(begun):
            return None
        try:
            # Pickled here and not in the queue's thread, whose errors nobody hears of: the rank would wait for ever.
            return _Pickled(each_tensor(self._maker.make(step, share, start), _in_shared_memory))
        except Exception as error:  # noqa: BLE001 the rank raises it
            return DataWorkerFailure.describing(error)


class _Pickled:
    """A batch on its way: pickled already, and on the other side of the queue the batch itself.

    Raises:
        ConfigurationError: it holds what no other process could be given.
    """

    def __init__(self, batch: Any) -> None:
        try:
            self._bytes = bytes(ForkingPickler.dumps(batch))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                "spec.training.task: a batch as its dataset() or collate() has made it cannot travel from a data "
                f"worker to its rank: {type(error).__name__}: {error}. Leave out functions and objects of local "
                "classes, or set spec.training.dataWorkers: 0."
            ) from error

    @override
    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self._bytes,)


@dataclass(frozen=True)
class DataWorkerFailure:
    """A failure is what a data worker raised. The rank raises it again, with evidence and fingerprint of the task."""

    kind: str
    text: str
    frame: str
    trace: str
    pickled: bytes

    @classmethod
    def describing(cls, error: Exception) -> DataWorkerFailure:
        """Return the failure that stands for an error."""
        told = rank_errors.describe(error, 0.0)[rank_errors.MEMBER]
        try:
            pickled = pickle.dumps(error)
        except Exception:  # noqa: BLE001 a task's error may hold anything
            pickled = b""
        return cls(type(error).__name__, rank_errors.text_of(error), told["frame"], told["traceback"], pickled)

    def error(self) -> Exception:
        """Return the error, or one of the same name with the same text where it cannot travel."""
        found: Any = None
        with suppress(Exception):  # as above
            found = pickle.loads(self.pickled)  # noqa: S301 of this rank's own child
        error: Exception = found if isinstance(found, Exception) else RuntimeError()
        if rank_errors.text_of(error) != self.text:
            error = type(self.kind, (RuntimeError,), {})(self.text)
        setattr(error, "trainmaster_frame", self.frame)  # noqa: B010 no class knows of it
        return error


class _WorkerTraceback(Exception):  # noqa: N818 it is shown as the cause of an error, and is none
    """The traceback in the data worker, as a text."""

    @override
    def __str__(self) -> str:
        return f"\nIn a data worker of this rank:\n{self.args[0]}"


def sockets() -> frozenset[int]:
    """Return the descriptors of this process that are sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 a Path for each takes its time
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.add(int(name))
        except OSError:  # the one that has listed the folder
            continue
    return frozenset(found)


def _as_it_is(batch: Any) -> Any:
    return batch


def _choose_folder(folder: Path | None) -> None:
    """Have multiprocessing's sockets made in this folder: those of a killed process would stay in /tmp for ever."""
    if folder is None:
        return
    if len(str(folder)) > _LONGEST_FOLDER:
        # The workers come to it by this process, which outlives them, and whose descriptor therefore stays open.
        folder = Path(f"/proc/{os.getpid()}/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        multiprocessing.util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def _begin(rank: int, mine: frozenset[int], number: int) -> None:
    """Make a forked process a data worker: it dies with its rank, and holds none of the rank's connections open."""
    process.die_with_parent(rank)
    process.rename(f"tm-data-{number}")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in sockets() - mine - {0, 1, 2}:
        os.dup2(nothing, descriptor)  # and not closed: the number must not become that of another file
    torch.multiprocessing.set_sharing_strategy("file_descriptor")  # type: ignore[no-untyped-call]
    setattr(torch.UntypedStorage, "_new_using_fd_cpu", classmethod(_nameless))  # noqa: B010 default_collate calls it


def _nameless(kind: Any, size: int) -> Any:
    """Return a storage in shared memory that has no name, as a process may be killed before it takes one away.

    Nor is a container's /dev/shm a limit to it.
    """
    descriptor = os.memfd_create("trainmaster-batch")
    try:
        os.ftruncate(descriptor, size)
        return kind._new_shared_fd_cpu(descriptor, size)  # noqa: SLF001 torch has no public name for it
    finally:
        os.close(descriptor)


def _in_shared_memory(tensor: Tensor) -> Tensor:
    """Return a tensor that another process can map; what is of a special kind is left to torch."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.untyped_storage().is_shared() or not tensor.numel() or type(tensor) is not Tensor:
        return tensor
    storage = _nameless(torch.UntypedStorage, tensor.numel() * tensor.element_size())
    room: Tensor = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape)  # type: ignore[call-overload]
    room.copy_(tensor.detach())
    return room.requires_grad_(tensor.requires_grad)
