"""Keep the losses of the global batches, without a synchronization in every step.

Each rank keeps the losses of its shares on its device. Every few steps one small all-reduce makes them those of the
global batches, and carries two more things that all ranks must agree on: whether a rank was asked to stop, and how
long the steps take, from which all compute the same number of steps until the next time.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from trainmaster_trainer.group import Group
from trainmaster_trainer.metric_names import MetricNames

INTERVAL_SECONDS = 0.5  # how late a loss, or a request to stop, may be seen
MOST_STEPS = 100  # even if steps become slow all of a sudden
COLUMNS = 5  # of what is pending, without metrics: one more for each of these


class StepLoss(NamedTuple):
    """Hold the loss of one global batch; `seconds` is the mean over the ranks of what the step took.

    `samples` says over how many samples the loss is a mean; with none there is no loss, and it is NaN. `ended` says
    when this rank was done with the step, in seconds of the epoch.
    """

    step: int
    loss: float
    seconds: float
    samples: float
    ended: float
    metrics: Mapping[str, float] = MappingProxyType({})


class Agreement(NamedTuple):
    """Hold what all ranks know after a flush."""

    losses: list[StepLoss]
    stop: bool
    refused: bool = False  # some rank's state is not finite, and was not saved
    snapshot_seconds: float = 0.0  # mean over the ranks of what a snapshot in memory takes them


class Losses:
    """Losses collects this rank's losses and adds them up with those of the other ranks."""

    def __init__(self, group: Group, names: MetricNames | None = None) -> None:
        self._group = group
        self._names = names  # None: the task has no metrics
        self._every = 1
        self._rows = 0
        self._nothing = torch.zeros((), device=group.device)
        self._clear()

    @property
    def _known(self) -> tuple[str, ...]:
        return self._names.known if self._names else ()

    def _clear(self) -> None:
        self._steps: list[int] = []
        self._make_page()
        self._local: list[Tensor] = []
        self._sizes: list[int] = []
        self._seconds: list[float] = []
        self._ended: list[float] = []
        self._metrics: list[Mapping[str, Tensor]] = []

    def add(
        self,
        step: int,
        loss: Tensor | None,
        size: int,
        seconds: float,
        *,
        ended: float | None = None,
        metrics: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """Keep a step's mean loss over `size` samples; None for a rank that does not see one.

        `ended`: when that was, in seconds of the epoch, if it was not just now. `metrics`: means over these samples.

        Raises:
            ConfigurationError: the metrics have other names than those of the steps before.
        """
        if self._names and loss is not None:
            self._names.note(metrics)
        self._keep(step, loss, size, seconds, ended=ended, metrics=metrics)

    def _keep(
        self,
        step: int,
        loss: Tensor | None,
        size: int,
        seconds: float,
        *,
        ended: float | None,
        metrics: Mapping[str, Tensor],
    ) -> None:
        self._steps.append(step)
        self._local.append(self._nothing if loss is None else loss.float())
        self._sizes.append(0 if loss is None else size)
        self._seconds.append(seconds)
        self._ended.append(time.time() if ended is None else ended)
        self._metrics.append(metrics if loss is not None else {})

    def pending(self) -> Tensor:
        """Return what is not flushed yet: step, mean loss, samples, seconds, when it ended, and the metrics by name.

        Float64, [MOST_STEPS, COLUMNS + metrics], good until the next call. Rows of step 0 are unused.
        """
        if self._table.shape[1] != COLUMNS + len(self._known):  # the first step has told their names
            self._make_page()
        for row in range(self._rows, len(self._steps)):
            loss = 0.0 if self._local[row] is self._nothing else float(self._local[row])
            figures = [float(self._metrics[row].get(name, 0.0)) for name in self._known]
            line = self._steps[row], loss, self._sizes[row], self._seconds[row], self._ended[row], *figures
            # Not by NumPy: between two steps its code is in no cache, and takes ten times as long.
            struct.pack_into(f"={len(line)}d", self._page, 8 * len(line) * row, *line)
        self._rows = len(self._steps)
        return self._table

    def _make_page(self) -> None:
        width = COLUMNS + len(self._known)
        self._page = bytearray(8 * MOST_STEPS * width)  # of `pending`
        self._table = torch.frombuffer(self._page, dtype=torch.float64).view(MOST_STEPS, width)
        self._rows = 0  # so many of which are filled

    def restore(self, pending: Iterable[Tensor], steps: range) -> None:
        """Go on with what was pending when the snapshots were taken. The share of a rank whose pod is gone is lost."""
        rows = [row for page in pending for row in page.tolist()]
        for step in steps:
            here = [row for row in rows if int(row[0]) == step]
            size = int(sum(row[2] for row in here))
            seconds, ended = (max((row[column] for row in here), default=0.0) for column in (3, 4))
            means = {name: self._mean(here, size, COLUMNS + place) for place, name in enumerate(self._known)}
            # What a rank that sees no loss had kept has no metrics, and no names that it could be wrong about.
            self._keep(step, self._mean(here, size, 1), size, seconds, ended=ended or None, metrics=means)

    def _mean(self, rows: list[list[float]], size: int, column: int) -> Tensor:
        """Return the mean of a column over the samples of these rows; that of a single row as it is."""
        columns = [(row[column], row[2]) for row in rows if column < len(row)]
        if len(columns) > 1 and size:
            mean = sum(value * samples for value, samples in columns) / size
        else:
            mean = columns[0][0] if columns else 0.0
        return torch.tensor(mean, device=self._group.device)

    @property
    def are_pending(self) -> bool:
        """Return whether there are steps since the last flush."""
        return bool(self._steps)

    @property
    def due(self) -> bool:
        """Return whether it is time to flush. It is the same on all ranks."""
        return len(self._steps) >= self._every

    def flush(self, stop_asked: bool, snapshot_seconds: float = 0.0, refused: bool = False) -> Agreement:
        """Add up the losses kept since the last flush over all ranks, which call this after the same step.

        Raises:
            ConfigurationError: ranks have metrics of different names.
        """
        if self._names:
            self._names.agree(self._group)
        if not self._steps:
            stops, refusals = self._group.sum(torch.tensor([float(stop_asked), float(refused)])).tolist()
            return Agreement([], stops > 0, refusals > 0)
        return self.agreed(self._group.sum(self.share(stop_asked, snapshot_seconds, refused)))

    def share(self, stop_asked: bool = False, snapshot_seconds: float = 0.0, refused: bool = False) -> Tensor:
        """Return what this rank has to say of the steps since the last flush, of which there must be some."""
        means = torch.stack(self._local).double().cpu()
        sizes = torch.tensor(self._sizes, dtype=torch.float64)
        seconds = torch.tensor(self._seconds, dtype=torch.float64) / self._group.world_size
        snapshots = torch.full_like(sizes, snapshot_seconds / self._group.world_size)
        told = [torch.full_like(sizes, stop_asked), torch.full_like(sizes, refused)]
        metrics = [column * sizes for column in self._columns()]
        return torch.stack([means * sizes, sizes, seconds, *told, snapshots, *metrics])

    def agreed(self, table: Tensor) -> Agreement:
        """Return what the sum of all ranks' shares says, and begin anew."""
        losses, sizes, seconds, stops, refusals, snapshots, *metrics = table
        self._every = max(1, min(MOST_STEPS, int(INTERVAL_SECONDS / max(float(seconds.mean()), 1e-6))))
        means = (losses / sizes).tolist()
        figures = [(column / sizes).tolist() for column in metrics]
        named = [dict(zip(self._known, row, strict=True)) for row in zip(*figures, strict=True)] or [{}] * len(means)
        rows = zip(self._steps, means, seconds.tolist(), sizes.tolist(), self._ended, named, strict=True)
        flags = bool(stops[0] > 0), bool(refusals[0] > 0)
        agreement = Agreement([StepLoss(*row) for row in rows], *flags, float(snapshots[0]))
        self._clear()
        return agreement

    def _columns(self) -> list[Tensor]:
        """Return each metric of the steps that are kept, as float64 on the CPU; 0 on a rank that sees no loss."""
        rows = [[one.get(name, self._nothing) for one in self._metrics] for name in self._known]
        return [torch.stack(row).double().cpu() for row in rows]
