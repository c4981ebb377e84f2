"""RankReport shows the state of the training after each step: progress page, losses, metrics file.

It keeps the bookkeeping out of `training_loop.py`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.agent import rank_errors
from trainmaster_trainer.batch_losses import Losses, StepLoss
from trainmaster_trainer.checkpoint.memory import Memory
from trainmaster_trainer.checkpoint.pieces import local
from trainmaster_trainer.checkpoint.resume import Resumed
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.data import Batch
from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.group import Group
from trainmaster_trainer.metric_names import MetricNames
from trainmaster_trainer.metrics import Metrics
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies.strategy import Strategy

log = logging.getLogger(__name__)
_FAILED = "last/failed"  # a key of the store: some rank has had an error of its own
LAST_WORDS = timedelta(seconds=0.25)  # for which a failed rank waits for others that fail as well


class RankReport:
    """RankReport is a rank's bookkeeping. Rank 0 has a metrics file; so has each folder of one replica alone."""

    def __init__(
        self,
        settings: Settings,
        group: Group,
        progress: Progress,
        resumed: Resumed,
        *,
        evaluations: Evaluations,
        names: MetricNames | None = None,
    ) -> None:
        self._progress = progress
        self._evaluations = evaluations
        self._group = group
        self._batch_size = settings.plan.global_batch_size
        self._losses = Losses(group, names)
        self._metrics: Metrics | None = None
        private = not settings.plan.checkpoint_shared
        if group.is_first or (private and group.local_rank == 0):
            self._metrics = Metrics.for_attempt(settings, resumed.lines_step, resumed.durable_step, evaluations.step)
        progress.start(resumed.step, resumed.durable_step)
        self._show_evaluation()
        if resumed.step > max(resumed.durable_step, resumed.begun):
            self._catch_up(resumed, group)

    def _catch_up(self, resumed: Resumed, group: Group) -> None:
        """Write the lines between the last one that all files have and a state out of memory, which is newer."""
        written = min(
            last for last in group.gather(self._metrics.last_step if self._metrics else None) if last is not None
        )
        # Lines of before the checkpoint that are gone (the file was deleted) stay gone.
        first = max(written, resumed.durable_step, resumed.begun) + 1
        self._losses.restore(resumed.pending, range(first, resumed.step + 1))
        if self._metrics is None:
            self.agree(stop_asked=False)
            return
        if written < self._metrics.last_step:
            self._metrics.cut(written)
        now, self._metrics.attempt = self._metrics.attempt, resumed.pending_attempt
        self.agree(stop_asked=False)
        self._metrics.attempt = now

    def stepped(
        self, step: int, loss: Tensor | None, batch: Batch, *, checkpoint_step: int, strategy: Strategy, memory: Memory
    ) -> None:
        """Note that a step of the strategy is done: keep its state in memory, if that is due, and only then show it."""
        seconds = self._progress.stepped(step, checkpoint_step, strategy.waited)
        self._losses.add(step, loss, batch.size, seconds, metrics=strategy.numerics.take_measured())
        if memory.due(step):
            began = time.monotonic()
            memory.keep(step, self._losses.pending())
            self._progress.kept(time.monotonic() - began)
        self._progress.write()

    @property
    def due(self) -> bool:
        """Return whether `agree` is due. It is the same on all ranks."""
        return self._losses.due

    def agree(self, stop_asked: bool, memory: Memory | None = None, saver: Saver | None = None) -> bool:
        """Make the losses global and write them. Return whether any rank was asked to stop. All ranks call it together.

        Raises:
            NonFiniteLossError: a loss is not finite, or a state that was to be saved. What was written of the steps
                before stays.
        """
        refused = saver is not None and saver.last.is_refused
        agreement = self._losses.flush(stop_asked, memory.seconds if memory else 0.0, refused)
        if memory and agreement.losses:
            memory.adapt(median(loss.seconds for loss in agreement.losses), agreement.snapshot_seconds)
        if agreement.losses:
            self._progress.loss = agreement.losses[-1].loss
            if self._group.is_first:
                self._progress.measured(agreement.losses[-1].metrics)
        if self._metrics:
            self._write(self._metrics, agreement.losses)
        try:
            check_finite(agreement.losses)
            if saver and agreement.refused:
                saver.wait(needed=False)
                saver.check()
        except NonFiniteLossError:
            if memory:
                memory.forget()
            raise
        return agreement.stop

    def _write(self, file: Metrics, losses: Iterable[StepLoss]) -> None:
        speed = round(self._progress.samples_per_second, 1)
        for step, loss, seconds, samples, ended, metrics in losses:
            told: dict[str, Any] = {"metrics": dict(metrics)} if metrics else {}
            told |= {"samples_per_second": speed, "step_seconds": round(seconds, 6)}
            if samples < self._batch_size:  # others have not told theirs, or it was lost
                told["samples"] = int(samples)
            file.add(step, loss=loss, **told, ended=ended)
        file.flush()

    @contextmanager
    def completed(self) -> Iterator[None]:
        """Write the lines of all steps before an error of the task within: no restart may come that would do it."""
        try:
            yield
        except Exception as error:
            if self._losses.are_pending:
                with suppress(Exception):  # it must not hide the error; and not all ranks may come
                    self._write_apart(is_echo=rank_errors.is_of_an_exchange(error))
            raise

    def _write_apart(self, *, is_echo: bool) -> None:
        """Write them if all ranks fail in the same step; each waits a moment for the others' shares and lines.

        `is_echo`: another rank is gone. Whether it was killed, and nobody is to wait, shows in the store.
        """
        if is_echo and self._group.world_size > 1 and not self._group.store.check([_FAILED]):
            return
        self._group.store.set(_FAILED, "")
        shares = self._group.gather_apart("last/shares", self._losses.share().tolist(), LAST_WORDS)
        losses = self._losses.agreed(torch.tensor(shares, dtype=torch.float64).sum(dim=0)).losses
        if self._metrics:
            self._write(self._metrics, losses)
        self._group.gather_apart("last/written", None, LAST_WORDS)

    def evaluated(self) -> None:
        """Write and show the newest evaluation. The lines up to its step are written."""
        if self._metrics:
            self._metrics.evaluated(self._evaluations.step, self._evaluations.figures)
        self._show_evaluation()

    def _show_evaluation(self) -> None:
        if self._group.is_first and self._evaluations.step:
            self._progress.evaluated(self._evaluations.report())

    def sync(self) -> None:
        """Bring what was written so far to the disk: a checkpoint of this step is about to become visible."""
        if self._metrics:
            self._metrics.sync()

    def finish(self, step: int, figures: dict[str, float]) -> None:
        """Write the result: the training is over."""
        if self._metrics:
            self._metrics.finish(step, figures, is_told=self._evaluations.step == step)
        if self._group.is_first:
            told = self._evaluations.report()
            self._progress.evaluated(replace(told, step=step, figures=dict(figures)))
        self._progress.enter("done")


def check_finite(losses: Iterable[StepLoss]) -> None:
    """Refuse a loss that is not finite: the model is damaged or about to be, so there is no further step or checkpoint.

    Raises:
        NonFiniteLossError: names the first such step.
    """
    for step, loss, _, samples, *_ in losses:
        if samples and not math.isfinite(loss):
            raise NonFiniteLossError(
                f"The loss of step {step} is {loss}. Lower the learning rate or clip the gradients, or look at this "
                "step's samples; a mixed-precision model may need a loss scale."
            )


def loss_to_tell(loss: Tensor | None, strategy: Strategy) -> Tensor | None:
    """Return the loss of a rank's share of the last step, or None for one that is not finite and harmed nothing.

    That is so where the loss scale has refused the step and the model here is sound. The loss of the step is then that
    of the other shares, if there are any.
    """
    scale = strategy.numerics.loss_scale
    if loss is None or scale is None or not scale.refused or bool(loss.isfinite()):
        return loss
    # A buffer may hold infinite numbers on purpose, as a mask does; a running mean of what overflowed ends as NaN.
    buffers_are_sound = not any(bool(local(buffer).isnan().any()) for buffer in strategy.model.buffers())
    if not (buffers_are_sound and are_finite(strategy.trained())):
        return loss
    log.info("The loss of that step is %s. As the step was not taken, it is left out.", loss.item())
    return None


def are_finite(weights: Iterable[Tensor]) -> bool:
    """Return whether all numbers of them that are on this rank are finite."""
    return all(bool(local(one.detach()).isfinite().all()) for one in weights)
