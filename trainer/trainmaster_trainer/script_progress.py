"""The progress page of a script's rank: written after steps that are counted (`agent/optimizer_steps.py`) or reported.

Standard library only, and Python 3.9: it runs in images that are not ours. A page costs microseconds; figures that take
longer (medians) are made anew a few times a second.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Evaluation, Figures
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.script_lines import ScriptLines

_WINDOW = 50  # steps over which speeds are taken
_FIGURES_SECONDS = 0.2  # for so long a median holds
_LAZY_STEPS = 3  # the first ones compile and connect
_FADING = 0.999  # as that of a task: the longest step of late fades to half in 700 steps
_NOTHING = float("nan")


class ScriptProgress:
    """ScriptProgress is what a rank of a script has said so far, and its page.

    Steps that the script reports are its steps. Until it reports one, optimizer steps are, after those that the
    optimizer itself had taken before, where it keeps count (Adam does, SGD does not).
    """

    def __init__(
        self, file: ProgressFile, attempt: int = 1, batch_size: int = 0, lines: ScriptLines | None = None
    ) -> None:
        self.lines = lines  # that rank 0 adds to metrics.jsonl
        self._file = file
        self._attempt = attempt
        self._batch_size = batch_size
        self._counted = 0
        self._base = 0
        self.reports = False
        self._total = 0
        self._loss = _NOTHING
        self._resumed = -1
        self._phase = "train"
        self._checkpoint_step = 0
        self._keeps = False  # its state is kept, and its steps are those after which it is
        self.step = 0
        self.figures: dict[str, float] = {}  # reported since they were looked at
        self._pace = StepPace()
        # A handler of a signal may report in the midst of a report.
        self.lock = threading.RLock()

    def counted(self, own_count: int | None) -> None:
        """Note an optimizer step. `own_count`: with the first one, how many the optimizer says that it has taken."""
        with self.lock:
            self._counted += 1
            if self._counted == 1 and not self.reports:
                if own_count is not None and own_count > 0:
                    self._base = self._resumed = own_count - 1
                elif self._attempt <= 1:
                    self._resumed = 0
                # Else it may have resumed from anywhere, and nobody says so: these are the steps since the restart.
            if self.reports:
                self._write(time.monotonic())  # it lives
            else:
                self._advance(self._base + self._counted)

    def reported(self, step: int | None, total: int | None, loss: float | None) -> int:
        """Note what the script reports. Return of which step that is."""
        with self.lock:
            self._total = self._total if total is None else total
            self._loss = self._loss if loss is None else loss
            if step is None:
                if self.has_steps:
                    self._write(time.monotonic())
                return self._resumed + self._counted if self._keeps else self.step
            if self._keeps:  # a step is done when its state is kept
                self._write(time.monotonic())
                return step
            if not self.reports:
                # After `counted` optimizer steps it says that `step` are done: it went on from the difference.
                self._resumed = step - self._counted if self._counted <= step else step
                self.reports = True
                self._pace = StepPace()
            self._advance(step)
            return step

    def went_on(self, step: int, checkpoint_step: int) -> None:
        """Note from which step the script goes on, as `session.state` has restored it."""
        with self.lock:
            self._resumed, self.reports, self._keeps, self._counted = step, True, True, 0
            self.kept(step, checkpoint_step)

    def kept(self, step: int, checkpoint_step: int) -> None:
        """Note that `session.state` has the state after a step, and the step of the newest checkpoint."""
        with self.lock:
            self._checkpoint_step = max(self._checkpoint_step, checkpoint_step)
            self._advance(step)

    def enter(self, phase: str) -> None:
        """Note and show what the rank does: train or save."""
        with self.lock:
            self._phase = phase
            self._write(time.monotonic())

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show what was found in the figures."""
        self._file.write_figures(Figures(evaluation=evaluation))

    @property
    def total(self) -> int:
        """Return how many steps there will be, as the script reports; 0 if it does not."""
        return self._total

    @property
    def optimizer_steps(self) -> int:
        """Return how many optimizer steps were counted; of a script whose state is kept, since it was restored."""
        return self._counted

    @property
    def has_steps(self) -> bool:
        """Return whether there is a step to speak of."""
        return self.reports or self._counted > 0

    def _advance(self, step: int) -> None:
        now = time.monotonic()
        self._pace.note(step, step - self.step, now)
        self.step = step
        self._write(now)

    def _write(self, now: float) -> None:
        pace = self._pace
        self._file.write(
            ProgressPage(
                step=self.step,
                loss=self._loss,
                samples_per_second=pace.steps_per_second * self._batch_size if self._batch_size else _NOTHING,
                step_seconds=pace.seconds,
                updated=now,
                phase=self._phase,
                checkpoint_step=self._checkpoint_step,
                resumed_step=self._resumed,
                busy_seconds=pace.busy,
                longest_seconds=pace.longest,
                total_steps=self._total,
            )
        )


class StepPace:
    """StepPace is how long steps take, and for how much of it the thread that takes them computes.

    A thread that waits for peers in gloo takes no time of the processor, so the slowest rank is the one that takes
    most.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[int, float]] = deque(maxlen=_WINDOW + 1)
        self._seconds: deque[float] = deque(maxlen=_WINDOW)
        self._busy: deque[float] = deque(maxlen=_WINDOW)
        self._computed = _NOTHING
        self._thread = self._steps = 0  # that took the steps since the last look, and how many
        self._figured = 0.0
        self.seconds = self.busy = self.steps_per_second = self.longest = _NOTHING

    def note(self, step: int, steps: int, now: float) -> None:
        """Note that `step` is done now, `steps` after the last one that was noted."""
        if self._ends and steps > 0:
            seconds = now - self._ends[-1][1]
            self._seconds.append(seconds / steps)
            self._steps += steps
            if len(self._seconds) > _LAZY_STEPS:
                self.longest = max(seconds, _FADING * self.longest) if math.isfinite(self.longest) else seconds
        elif steps < 0:
            self._ends.clear()
        self._ends.append((step, now))
        if now - self._figured >= _FIGURES_SECONDS or len(self._seconds) <= _LAZY_STEPS:
            self._figure(now)

    def _figure(self, now: float) -> None:
        self._figured = now
        computed, thread = time.thread_time(), threading.get_ident()
        if thread == self._thread and self._steps:
            self._busy.append((computed - self._computed) / self._steps)
        self._computed, self._thread, self._steps = computed, thread, 0
        if self._seconds:
            self.seconds = median(self._seconds)
        if self._busy:
            self.busy = median(self._busy)
        (first, then), (last, end) = self._ends[0], self._ends[-1]
        if end > then:
            self.steps_per_second = (last - first) / (end - then)


_page: ScriptProgress | None = None
_opened_by = 0  # the process that has looked for a page


def of_this_process() -> ScriptProgress | None:
    """Return this process's progress; None outside of Trainmaster, and in processes that a rank has started."""
    global _page, _opened_by  # noqa: PLW0603 one process has one page
    if _opened_by != os.getpid():
        forked, _opened_by = _opened_by != 0, os.getpid()
        _page = None if forked else _open(os.environ)  # a data loader's process reports no steps
    return _page


def _open(environment: Mapping[str, str]) -> ScriptProgress | None:
    path = environment.get(names.ENV_PROGRESS_FILE)
    with suppress(OSError, ValueError, KeyError, codec.WireError):
        if path:
            file = ProgressFile(path)
            plan = codec.decode(TrainingPlan, environment[names.ENV_TRAINING])
            attempt, first = int(environment[names.ENV_ATTEMPT]), environment.get("RANK") == "0"
            lines = ScriptLines(Path(environment[names.ENV_CHECKPOINTS]), attempt) if first else None
            if file.claim(os.getpid()):
                return ScriptProgress(file, attempt, plan.global_batch_size, lines)
    return None
