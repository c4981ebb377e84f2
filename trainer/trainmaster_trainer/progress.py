"""Progress shows the agent this rank's state on the progress page, with the speeds.

Without an agent there is no page, and the speeds still go into the metrics.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from trainmaster.wire.messages import CheckpointRecord, Evaluation, Figures
from trainmaster.wire.metric_lines import METRICS
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.metric_names import LONGEST_NAME, MOST_METRICS

log = logging.getLogger(__name__)
WINDOW = 50  # steps over which speeds are taken
# The longest step of late fades to half in 700 steps. The first few say nothing: they import, compile and connect.
FADING = 0.999
_FIRST_BATCHES = 2  # each of which the agent is patient with in another way
_SIGN_SECONDS = 0.1  # between two signs of life from an evaluation; a write takes as long as a quick batch
LAZY_STEPS = 3


class Progress:
    """Progress holds step, phase and speed of this rank."""

    def __init__(self, path: Path | None, global_batch_size: int) -> None:
        # The agent has made the file; by hand there may be none yet.
        self._file = ProgressFile(str(path), create=not path.exists()) if path else None
        self._batch_size = global_batch_size
        self._ends: deque[float] = deque(maxlen=WINDOW + 1)
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._busy: deque[float] = deque(maxlen=WINDOW)
        self._exchanged: deque[float] = deque(maxlen=WINDOW)
        self._kept: deque[float] = deque(maxlen=WINDOW)
        self._read: deque[tuple[float, float]] = deque(maxlen=WINDOW + 1)  # when a batch came, and after how long
        self._last = self._entered = self._shown = time.monotonic()
        self._told: tuple[float, float] | None = None
        self.step = 0
        self.loss = float("nan")
        self.checkpoint_step = 0
        self.resumed_step = -1
        self.save_seconds = 0.0
        self.longest_seconds = 0.0
        self.total_steps = 0  # 0: the operator knows it by the spec
        self.phase = "load"
        self._tried = 0
        self._figures = Figures()
        self.write()

    def lasts(self, plan: TrainingPlan) -> None:
        """Note how many steps the training has, where the spec says epochs instead."""
        self.total_steps = plan.steps if plan.epochs is not None else 0

    def enter(self, phase: str, checkpoint_step: int = 0) -> None:
        """Note and show the phase: load, train, save, evaluate or done."""
        now = time.monotonic()
        if self.phase == "save":
            self.save_seconds += now - self._entered
        self.phase = phase
        self._tried = 0
        self.checkpoint_step = max(self.checkpoint_step, checkpoint_step)
        self._last = self._entered = now
        self.write()

    def trying(self, batch: int) -> None:
        """Note with which batch an evaluation begins, as a sign of life; 0: it is through with them."""
        self._tried = batch
        if batch <= _FIRST_BATCHES or time.monotonic() - self._shown >= _SIGN_SECONDS:
            self.write()

    def committed(self, record: CheckpointRecord) -> None:
        """Tell the agent of a checkpoint that another member has committed: this one's last word may come first."""
        if self._file is not None:
            self._file.write_checkpoint(record)

    def measured(self, metrics: Mapping[str, float]) -> None:
        """Show a step's metrics."""
        self._show(replace(self._figures, metrics=_known(metrics)))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show the newest evaluation of the model."""
        self._show(replace(self._figures, evaluation=replace(evaluation, figures=_known(evaluation.figures))))

    def _show(self, figures: Figures) -> None:
        if figures != self._figures and self._file is not None and not self._file.write_figures(figures):
            log.warning("The names of the figures are too long to be shown; %s has all of them.", METRICS)
        self._figures = figures

    def start(self, step: int, checkpoint_step: int) -> None:
        """Note that training goes on after `step`; the newest checkpoint may be older."""
        self.step = self.resumed_step = step
        self.checkpoint_step = checkpoint_step
        self.enter("train")
        self._ends.append(self._last)

    def stepped(self, step: int, checkpoint_step: int, waited: float = 0.0, now: float | None = None) -> float:
        """Note that a step is done, `waited` seconds of it spent on peers. Return its seconds. `write` shows it."""
        self.checkpoint_step = max(self.checkpoint_step, checkpoint_step)
        now = time.monotonic() if now is None else now
        seconds = max(now - self._last, 0.0)
        self._last = now
        self._ends.append(now)
        self._seconds.append(seconds)
        self._busy.append(max(0.0, seconds - waited))
        self._exchanged.append(waited)
        self._kept.append(0.0)
        if len(self._seconds) > LAZY_STEPS:
            self.longest_seconds = max(seconds, FADING * self.longest_seconds)
        self.step = step
        self.phase = "train"
        return seconds

    def kept(self, seconds: float) -> None:
        """Note that a snapshot after the last step took so long."""
        if self._kept:
            self._kept[-1] = seconds

    def _share(self, spent: Iterable[float]) -> float:
        """Return the share that these seconds are of the last steps, snapshots included."""
        span = sum(self._seconds) + (self._kept[-1] if self._kept else 0.0)
        return min(1.0, sum(spent) / span) if span > 0 else 0.0

    def take_over(self, step: int, loss: float, samples_per_second: float, step_seconds: float) -> None:
        """Take over step, loss and speeds from the process that counts all members' steps."""
        self.step, self.loss = max(self.step, step), loss
        self._told = (samples_per_second, step_seconds)
        self.write()

    def read(self, seconds: float, now: float | None = None) -> None:
        """Note that a batch has come, for which this rank has waited so long."""
        self._read.append((time.monotonic() if now is None else now, seconds))

    @property
    def data_share(self) -> float:
        """Return the share of the time of the last batches in which this rank waited for them."""
        span = self._read[-1][0] - self._read[0][0] if self._read else 0.0
        # A mean and no median: several data workers bring several batches at a time.
        return min(1.0, sum(seconds for _, seconds in [*self._read][1:]) / span) if span > 0 else 0.0

    @property
    def step_times(self) -> list[float]:
        """Return the seconds of each of the last steps."""
        return list(self._seconds)

    @property
    def step_seconds(self) -> float:
        """Return the median of the last steps' seconds."""
        if self._told:
            return self._told[1]
        return median(self._seconds) if self._seconds else float("nan")

    @property
    def samples_per_second(self) -> float:
        """Return the samples of all ranks per second, over the last steps, saves included."""
        if self._told:
            return self._told[0]
        span = self._ends[-1] - self._ends[0] if len(self._ends) > 1 else 0.0
        return (len(self._ends) - 1) * self._batch_size / span if span > 0 else float("nan")

    def write(self) -> None:
        """Update the page."""
        if self._file is None:
            return
        self._shown = time.monotonic()
        self._file.write(
            ProgressPage(
                step=self.step,
                loss=self.loss,
                samples_per_second=self.samples_per_second,
                step_seconds=self.step_seconds,
                updated=self._shown,
                phase=self.phase,
                checkpoint_step=self.checkpoint_step,
                resumed_step=self.resumed_step,
                busy_seconds=median(self._busy) if self._busy else float("nan"),
                save_seconds=self.save_seconds,
                longest_seconds=self.longest_seconds,
                total_steps=self.total_steps,
                data_share=self.data_share,
                exchange_share=self._share(self._exchanged),
                snapshot_share=self._share(self._kept),
                tried=self._tried,
            )
        )


def _known(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the first figures by name, as many as are shown; None for one that is not finite."""
    named = sorted((name, value) for name, value in figures.items() if len(name) <= LONGEST_NAME)
    return {name: value if value is not None and math.isfinite(value) else None for name, value in named[:MOST_METRICS]}
