"""Make batches from a stream: samples that come one after the other, as those of an IterableDataset.

A stream is one sequence, the same for all ranks: the global batch of a step is its next `globalBatchSize` samples. Each
rank reads all of them, keeps its share and passes over the rest, and so does each data worker with the batches of the
others. What takes time for a sample therefore belongs into the task's `collate`, which sees what was kept alone.

Where a stream stands after a step is known to the dataset, if it has `state_dict` and `load_state_dict`, as torchdata's
StatefulDataLoader asks for them: checkpoints keep that. A dataset without them is read again up to the step. That no
sample is lost or repeated is the dataset's promise, not the trainer's. Random numbers follow from seed and step, or
from seed and epoch at the beginning of one.
"""

from __future__ import annotations

import base64
import json
import logging
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils import worker
from trainmaster.wire.bounded_json import LARGEST_COUNT

from trainmaster_trainer import randomness
from trainmaster_trainer.collating import collate
from trainmaster_trainer.errors import ConfigurationError, with_article
from trainmaster_trainer.making import Collate, pair

if TYPE_CHECKING:
    from trainmaster_trainer.data import Share

log = logging.getLogger(__name__)
MOST_BYTES = 1 << 20  # of a dataset's state
_TENSOR = "__tensor__"


def is_stream(samples: Any) -> bool:
    """Return whether samples can only be iterated, and not be asked for by number."""
    if isinstance(samples, (Tensor, tuple, set)):
        return False
    return isinstance(samples, IterableDataset) or (
        hasattr(samples, "__iter__") and not hasattr(samples, "__getitem__")
    )


def length_of(stream: Any) -> int:
    """Return how many samples a stream says that it has; 0 where it does not."""
    return len(stream) if hasattr(stream, "__len__") else 0


@dataclass(frozen=True)
class StreamPlace:
    """A place is how far a stream has been read. It was begun anew `epoch` times."""

    samples: int  # in all, as steps count them
    begun: int = 0  # how many there were when its first epoch began: it may begin with another job's checkpoint
    epoch: int = 0
    of_epoch: int = 0  # samples of this epoch
    state: Any = None  # of the dataset or its iterator; None: it has none

    def packed(self) -> str:
        """Return it as checkpoints keep it.

        Raises:
            ConfigurationError: the dataset's state is no JSON, or too long.
        """
        try:
            text = json.dumps(asdict(self), default=_plain)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                "spec.training.task: state_dict() of its dataset() gives what a checkpoint cannot hold without "
                f"pickle: {error}. Let it keep numbers, texts, tensors, lists, and dicts with texts as keys."
            ) from None
        if len(text) > MOST_BYTES:
            raise ConfigurationError(
                f"spec.training.task: state_dict() of its dataset() has {len(text)} characters, and checkpoints and "
                f"snapshots hold {MOST_BYTES} at most. Let it keep where it stands (a file, an offset), not samples."
            )
        return text

    @classmethod
    def unpacked(cls, text: Any) -> StreamPlace:
        """Return what `packed` gave.

        Raises:
            ConfigurationError: it gave no such thing.
        """
        try:
            told = dict(json.loads(text, object_hook=_rich))
            state = told.pop("state", None)
            return cls(**{name: _count(value) for name, value in told.items()}, state=state)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise ConfigurationError(
                f"spec.checkpoint: the checkpoint does not say where the stream of samples stood: {error}. Begin "
                "another job, or go on from an older checkpoint (spec.checkpoint.resumeFrom)."
            ) from None


def _plain(value: object) -> dict[str, Any]:
    """Return a tensor as JSON: torchdata's loaders keep the state of their random numbers in one.

    Raises:
        TypeError: it is no tensor.
    """
    if not isinstance(value, Tensor):
        raise TypeError(with_article(type(value).__name__))
    bits = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {_TENSOR: [str(value.dtype).removeprefix("torch."), [*value.shape], base64.b64encode(bits).decode()]}


def _count(value: object) -> int:
    """Return a number of samples or epochs.

    Raises:
        ValueError: it cannot be one.
    """
    if type(value) is int and 0 <= value < LARGEST_COUNT:
        return value
    raise ValueError(f"{value!r:.40} is no number of samples")


def _rich(value: dict[str, Any]) -> Any:
    """Return the tensor that `_plain` has made JSON of.

    Raises:
        TypeError, ValueError: it has not.
    """
    if value.keys() != {_TENSOR}:
        return value
    name, shape, text = value[_TENSOR]
    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name!r:.40} is no dtype")
    bits = bytearray(base64.b64decode(text, validate=True))
    if len(bits) != math.prod(map(range(MOST_BYTES).__getitem__, shape)) * dtype.itemsize:
        raise ValueError("a tensor has not as many bytes as its shape says")
    return torch.frombuffer(bits, dtype=dtype).reshape(shape) if bits else torch.empty(shape, dtype=dtype)


class StreamMaker:
    """StreamMaker makes the batches of a stream, in the order of steps; `own` is the task's collate; None: torch's.

    Raises:
        ConfigurationError: the stream has batches in place of samples.
    """

    def __init__(self, dataset: Any, batch_size: int, seed: int, own: Collate | None) -> None:
        if isinstance(dataset, DataLoader) and dataset.batch_sampler is not None:
            raise ConfigurationError(
                "spec.training.task: its dataset() gave a DataLoader that makes batches, and each of them would count "
                "as one sample: Trainmaster makes the batches, of globalBatchSize samples. Return the loader's own "
                "dataset, or a loader with batch_size=None."
            )
        self._dataset, self._size, self._seed, self._own = dataset, batch_size, seed, own
        self._iterator: Iterator[Any] | None = None
        self._place = StreamPlace(0)
        self._is_new = False  # an epoch has just begun, and has its seed
        self.promised = 0  # samples of each epoch, where the number of steps follows from them; 0: it does not

    def make(self, step: int, share: Share, start: str | None) -> tuple[Any, Any, str]:
        """Return inputs and targets of a share, and the place after the step. `start`: from where training went on.

        Raises:
            ConfigurationError: the stream has ended for good, or its samples make no pair of inputs and targets.
        """
        begin = (step - 1) * self._size
        if self._iterator is None or self._place.samples > begin:
            self._go_to(StreamPlace.unpacked(start))
        while self._place.samples < begin:
            self._next()
        read = [self._next() for _ in range(self._size)]
        place = replace(self._place, state=self._state()).packed()
        first, end = share.bounds(self._size)
        randomness.seed_samples(self._seed, step, share.index, share.of)
        if self._own is not None:
            return *pair(self._own(read[first:end]), "what its collate() returns"), place
        return *pair(collate(read[first:end], range(begin + first, begin + end)), "a sample of its dataset()"), place

    def _go_to(self, place: StreamPlace) -> None:
        """Go on from a place: by the dataset's state, else by reading what lies before it once more."""
        worker._worker_info = None  # noqa: SLF001 else a dataset gives data workers parts
        if place.state is not None and self._load(place):
            return
        by_epoch = hasattr(self._dataset, "set_epoch")
        before = place.of_epoch if by_epoch else place.samples - place.begun
        self._begin(replace(place, samples=place.samples - before, epoch=place.epoch if by_epoch else 0))
        if before:
            log.info("The dataset has no state: its first %d samples are read again, to go on after them.", before)
        while self._place.samples < place.samples:
            self._next()

    def _load(self, place: StreamPlace) -> bool:
        """Give the iterator the state, or else the dataset. Return whether one of them takes it."""
        self._set_epoch(place.epoch)
        self._iterator = iter(self._dataset)
        if hasattr(self._iterator, "load_state_dict"):
            self._iterator.load_state_dict(place.state)
        elif hasattr(self._dataset, "load_state_dict"):
            self._dataset.load_state_dict(place.state)
            self._iterator = iter(self._dataset)
        else:
            return False
        self._place = place
        return True

    def _state(self) -> Any:
        keepers: tuple[Any, Any] = (self._iterator, self._dataset)
        for keeper in keepers:
            if hasattr(keeper, "state_dict") and hasattr(keeper, "load_state_dict"):
                return keeper.state_dict()
        return None

    def _set_epoch(self, epoch: int) -> None:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)

    def _begin(self, place: StreamPlace) -> None:
        """Begin an epoch."""
        randomness.seed_samples(self._seed, place.epoch, 0, 0)
        self._set_epoch(place.epoch)
        self._iterator, self._place, self._is_new = iter(self._dataset), replace(place, of_epoch=0, state=None), True

    def _next(self) -> Any:
        step, of_step = divmod(self._place.samples, self._size)
        if of_step == 0 and not self._is_new:
            randomness.seed_samples(self._seed, step + 1, 0, 1)
        try:
            sample = next(self._iterator)  # type: ignore[arg-type]
            if self.promised and self._place.of_epoch >= self.promised:
                raise self._other_length("gives more")
        except StopIteration:
            sample = self._first_of_next_epoch()
        place, self._is_new = self._place, False
        self._place = replace(place, samples=place.samples + 1, of_epoch=place.of_epoch + 1)
        return sample

    def _first_of_next_epoch(self) -> Any:
        place = self._place
        if 0 < place.of_epoch < self.promised:
            raise self._other_length(f"ended after {place.of_epoch}")
        if place.of_epoch:
            self._begin(replace(place, epoch=place.epoch + 1))
            with suppress(StopIteration):
                return next(self._iterator)  # type: ignore[arg-type]
        if place.samples == place.begun:
            raise ConfigurationError("spec.training.task: its dataset() gives no sample. Give it at least one.")
        steps = place.samples // self._size
        raise ConfigurationError(
            f"spec.training.task: its dataset() ended after {place.samples - place.begun} samples, in step "
            f"{steps + 1}, and gives none when it is iterated once more. Return one that can be iterated for each "
            f"epoch (not a generator), or set spec.training.steps to {steps} at most."
        )

    def _other_length(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"spec.training.epochs: the task's dataset() has {self.promised} samples by its __len__, and {what}, so "
            "the steps would be other epochs than were asked for. Let __len__ return how many samples it gives, or set "
            "spec.training.steps instead."
        )
