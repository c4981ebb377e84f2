"""Decide the order of samples: a pure function of (seed, epoch, global index), whatever the world size.

Step s takes the global positions (s-1)*B to s*B-1 of one endless sequence in which every epoch is a fresh
permutation of the dataset. So the committed step alone is the cursor: any world size resumes exactly, an epoch that
ends inside a batch goes over into the next without a sample lost or repeated, and an audit can count
(`tests/trainer/test_data.py`).

How an epoch is shuffled: `permutation.py`.

Samples may be made with random numbers (crops, noise, masks). Those are a function of (seed, step, part of the batch):
ranks that work on the same samples see the same ones, and so does a rank that computes a step again.

How a batch is made: `making.py`; by processes ahead of the step: `data_workers.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from trainmaster_trainer.data_workers import Ahead, DataWorkers
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.making import Collate, Maker, are_in_memory, as_dataset, check_has_all
from trainmaster_trainer.permutation import Indices, block, block_size
from trainmaster_trainer.streams import StreamMaker, StreamPlace, is_stream, length_of
from trainmaster_trainer.structure import leaves, part_of, to_device
from trainmaster_trainer.task import Samples


@dataclass(frozen=True)
class Share:
    """A share is `parts` parts from part `index` on, of `of` equal parts of every global batch: mostly one part.

    Ranks that work on the same samples have the same share.
    """

    index: int
    of: int
    parts: int = 1

    def bounds(self, size: int) -> tuple[int, int]:
        """Return first and last-plus-one of this part of `size` things. Part sizes differ by at most one."""
        small, bigger = divmod(size, self.of)
        first, end = (place * small + min(place, bigger) for place in (self.index, self.index + self.parts))
        return first, end

    def each(self) -> list[Share]:
        """Return its parts as shares of one part each."""
        return [Share(index, self.of) for index in range(self.index, self.index + self.parts)]


WHOLE = Share(0, 1)


@dataclass(frozen=True)
class Batch:
    """A batch is one rank's share of the global batch of one step."""

    inputs: Any
    targets: Any
    size: int
    global_size: int
    fraction_done: float  # of all steps, when this one is done
    step: int = 0
    shares: int = 1  # that the global batch is cut into
    place: int = 0  # of its first sample in the share, where it is a part of it

    def weight(self, shares: int) -> float:
        """Return the factor for the share's mean loss that makes the mean over the shares that of all samples."""
        return self.size * shares / self.global_size

    @property
    def smallest(self) -> int:
        """Return the number of samples of the smallest share of this step, perhaps another rank's: at least one."""
        return max(1, self.global_size // self.shares)

    def parts(self, most: int | None) -> list[Batch]:
        """Return it in parts of about `most` samples, as many of them as every other share of this step is cut into.

        Shares may differ by a sample; the smallest one must have a sample for each part, so where `most` is 1 or
        the shares are tiny, a part may have one sample more.
        """
        largest = math.ceil(self.global_size / self.shares)
        count = 1 if most is None else min(math.ceil(largest / most), self.smallest)
        if count == 1:
            return [self]
        self.check_can_be_cut()
        return [self.part(*Share(index, count).bounds(self.size)) for index in range(count)]

    def check_can_be_cut(self) -> None:
        """Check that all its tensors have the sample as their first dimension, along which it is cut.

        Raises:
            ConfigurationError: one has not, as a task's collate may leave out samples, or put time first.
        """
        for what, value in (("inputs", self.inputs), ("targets", self.targets)):
            for leaf in leaves(value):
                if leaf.dim() == 0 or len(leaf) != self.size:
                    raise ConfigurationError(
                        f"spec.training.task: the {what} of a batch of {self.size} samples have a tensor of shape "
                        f"{[*leaf.shape]}, and micro-batches are cut along the first dimension, which must be the "
                        f"{self.size} samples. Let collate() return them so, all of them, or train without "
                        "microBatchSize and reproducible, and by a strategy without stages, such as AllReduce."
                    )

    def check_has_all(self, *, is_counted: bool = False) -> None:
        """Check that no sample was left out, where other ranks have other shares and means are weighed by samples.

        `is_counted`: the loss says itself of how much it is the sum, and there are no metrics beside it.

        Raises:
            ConfigurationError: a collate has left some out.
        """
        if self.shares > 1 and not is_counted:
            check_has_all((self.inputs, self.targets), self.size)

    def part(self, first: int, end: int) -> Batch:
        """Return samples `first` to `end - 1` of it."""
        inputs, targets = part_of(self.inputs, first, end), part_of(self.targets, first, end)
        return replace(self, inputs=inputs, targets=targets, size=end - first, place=self.place + first)


@dataclass(frozen=True)
class SampleOrder:
    """SampleOrder decides which samples make the global batch of a step."""

    samples: int
    batch_size: int
    seed: int

    def indices(self, step: int) -> Indices:
        """Return the samples of the global batch of `step`, which counts from 1."""
        return self.share(step, Share(0, 1))

    def share(self, step: int, share: Share) -> Indices:
        """Return one part of the global batch of `step`."""
        first, end = share.bounds(self.batch_size)
        before = (step - 1) * self.batch_size
        return np.concatenate([*self._pieces(before + first, before + end)] or [np.empty(0, np.int64)])

    def _pieces(self, position: int, end: int) -> Iterator[Indices]:
        size = block_size(self.samples)
        while position < end:
            epoch, place = divmod(position, self.samples)
            number, first = divmod(place, size)
            piece = block(self.samples, self.seed, epoch, number)[first : first + end - position]
            yield piece
            position += len(piece)


class Batches:
    """Batches makes a rank's share of any step's batch from the samples of a task. `own`: the task's own collate."""

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        steps: int,
        seed: int,
        device: torch.device,
        *,
        own: Collate | None = None,
    ) -> None:
        self.is_stream = is_stream(samples)
        self._dataset: Any = samples
        self._maker: Maker | StreamMaker
        if self.is_stream:
            self._order = SampleOrder(length_of(samples), batch_size, seed)
            self._maker = StreamMaker(samples, batch_size, seed, own)
        else:
            self._dataset, count = as_dataset(samples)
            self._order = SampleOrder(count, batch_size, seed)
            self._maker = Maker(self._dataset, self._order, own)
        self._make: Callable[[int, Share, str | None], tuple[Any, ...]] = self._maker.make
        self._start: str | None = None
        self.place: str | None = None  # of a stream, after the batch that was taken last
        self._workers: DataWorkers | None = None
        self.waited = 0.0  # seconds, for the last batch
        self.steps = steps  # of the whole training
        self._device = device

    @property
    def count(self) -> int:
        """Return the number of samples of the dataset; 0: it is a stream that does not say it."""
        return self._order.samples

    @property
    def are_in_memory(self) -> bool:
        """Return whether the samples lie in memory, so that no data worker could be quicker."""
        return are_in_memory(self._dataset)

    def hold_to_length(self) -> None:
        """Let a stream that has another length than it says be an error: the number of steps follows from it."""
        if isinstance(self._maker, StreamMaker):
            self._maker.promised = self.count

    def read_ahead(self, ahead: Ahead, last: int | None, sockets: frozenset[int] = frozenset()) -> None:
        """Have data workers make the batches from now on; `sockets` are those that the dataset itself has opened."""
        pinned = self._device.type == "cuda"
        self._workers = DataWorkers(self._maker, ahead, last, pinned=pinned, sockets=sockets)
        self._make = self._workers.take

    def go_on_from(self, place: str) -> None:
        """Go on from this place of a stream, as `place` was after the last step."""
        self._start = self.place = place

    def close(self) -> None:
        """End the data workers, if there are any: nothing is taken any more."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def take(self, step: int, share: Share | None) -> Batch:
        """Return the samples of `share` in the global batch of `step`, on the device.

        The random number generators are left as the samples need them: seed them anew before anything else draws.
        """
        if share is None:
            return Batch(None, None, 0, self._order.batch_size, step / self.steps, step)
        first, end = share.bounds(self._order.batch_size)
        if self.is_stream and self._start is None:  # the training begins with this step
            before = (step - 1) * self._order.batch_size
            self._start = StreamPlace(before, begun=before).packed()
        began = time.monotonic()
        inputs, targets, *place = self._make(step, share, self._start)
        self.place = place[0] if place else None
        self.waited = time.monotonic() - began
        return Batch(
            inputs=to_device(inputs, self._device),
            targets=to_device(targets, self._device),
            size=end - first,
            global_size=self._order.batch_size,
            fraction_done=step / self.steps,
            step=step,
            shares=share.of,
        )


def check_batch_size(batch_size: int, shares: int) -> None:
    """Check that every share has a sample, as its mean would be undefined.

    Raises:
        ConfigurationError: there are more shares than samples in a batch.
    """
    if batch_size < shares:
        raise ConfigurationError(
            f"spec.training.globalBatchSize: {batch_size} samples cannot be shared by {shares} ranks. "
            f"Raise it to {shares} at least, or lower spec.workers.replicas."
        )
