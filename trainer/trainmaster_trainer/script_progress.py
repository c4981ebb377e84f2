"""The progress page of a script's rank: written after steps that are counted (`agent/optimizer_steps.py`) or reported.

Standard library only, and Python 3.9: it runs in images that are not ours. A page costs microseconds; figures that take
longer (medians) are made anew a few times a second.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Evaluation, Figures
from trainmaster.wire.progress_page import ProgressFile, ProgressPage, is_alive
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.script_lines import ScriptLines

_WINDOW = 50  # steps over which speeds are taken
_FIGURES_SECONDS = 0.2  # for so long a median holds
_LAZY_STEPS = 3  # the first ones compile and connect
_NEW_STEPS = 2  # of an optimizer of its own phase; the first counted as one beside the last of the phase before
_FADING = 0.999  # as that of a task: the longest step of late fades to half in 700 steps
_NOTHING = float("nan")


class ScriptProgress:
    """ScriptProgress is what a rank of a script has said so far, and its page.

    Steps that the script reports are its steps. Until it reports one, optimizer steps are, after those that the
    optimizer itself had taken before, where it keeps count (Adam does, SGD does not).

    `before`: the page as another process of the rank has left it. The steps of a program that begins anew come after
    those that are there.
    """

    def __init__(
        self,
        file: ProgressFile,
        attempt: int = 1,
        batch_size: int = 0,
        lines: ScriptLines | None = None,
        before: ProgressPage | None = None,
    ) -> None:
        self.lines = lines  # that rank 0 adds to metrics.jsonl
        self._file = file
        self._attempt = attempt
        self._batch_size = batch_size
        self._before = before
        self._process = os.getpid()
        self._counted = 0
        self._base = 0
        self._earlier = 0 if before is None else before.earlier_steps
        self._offset = 0  # of what it reports
        self.reports = False
        self._total = 0
        self._loss = _NOTHING
        self._resumed = -1 if before is None else before.resumed_step
        self._phase = "train"
        self._checkpoint_step = 0 if before is None else before.checkpoint_step
        self._keeps = False  # its state is kept, and its steps are those after which it is
        self.step = 0
        self.figures: dict[str, float] = {}  # reported since they were looked at
        self._pace = StepPace()
        self._first_step = FirstStep(file.made, _NOTHING if before is None else before.start_seconds)
        # A handler of a signal may report in the midst of a report.
        self.lock = threading.RLock()

    def counted(self, own_count: int | None) -> None:
        """Note an optimizer step. `own_count`: of an optimizer that is new, how many it says that it has taken."""
        with self.lock:
            self._counted += 1
            if self._counted == 1 and not self.reports:
                if own_count is not None and own_count > 1:
                    self._base = own_count - 1
                elif self._before is not None:
                    self._base = self._earlier = self._before.step
                # Without a count of its own it may have resumed from anywhere, and nobody says so: after a restart
                # these are the steps since then.
                if self._before is None and (own_count or self._attempt <= 1):
                    self._resumed = self._base
            elif own_count is not None and own_count <= _NEW_STEPS < self._counted and not self.reports:
                self._earlier = self.step  # another phase begins
            if self.reports:
                self._write(time.monotonic())  # it lives
            else:
                self._advance(self._base + self._counted)

    def reported(self, step: int | None, total: int | None, loss: float | None) -> int:
        """Note what the script reports. Return of which step that is."""
        with self.lock:
            self._total = self._total if total is None else total
            if loss is not None:
                self._loss = loss if math.isfinite(loss) else math.inf  # said, and no number that could be shown
            if step is None:
                if self.has_steps:
                    self._write(time.monotonic())
                return self._resumed + self._counted if self._keeps else self.step
            if self._keeps:  # a step is done when its state is kept
                self._write(time.monotonic())
                return step
            if not self.reports:
                # After `counted` optimizer steps it says that `step` are done: it went on from the difference.
                if self._before is None:
                    self._resumed = step - self._counted if self._counted <= step else step
                elif step - self._counted <= 1:
                    self._offset = self._earlier = self._before.step
                self.reports = True
                self._pace = StepPace()
            self._advance(self._offset + step)
            return self.step

    def went_on(self, step: int, checkpoint_step: int) -> None:
        """Note from which step the script goes on, as `session.state` has restored it."""
        with self.lock:
            self._resumed = step if self._before is None else self._resumed
            self.reports, self._keeps, self._counted = True, True, 0
            self.step, self._earlier = step, 0  # it counts its own steps, and has taken none now
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
    def reported_step(self) -> int:
        """Return the step as the script itself counts."""
        return self.step - self._offset

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
        if step > self.step:
            self._first_step.note(now)
        self.step = step
        self._write(now)

    def _write(self, now: float) -> None:
        if self._file.writer != self._process:
            return  # another process of the rank has reported, and this one only counts
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
                total_steps=self._total and self._offset + self._total,
                start_seconds=self._first_step.start_seconds,
                earlier_steps=self._earlier,
            )
        )


class FirstStep:
    """FirstStep finds how long it took until the first step of a try began. It is known when the second one is told.

    When it ended is known, and it is taken to have lasted as long as the second one: what it takes longer belongs to
    the start (caches are cold, and something may be compiled).
    """

    def __init__(self, started: float, start_seconds: float = _NOTHING) -> None:
        self.start_seconds = start_seconds
        self._started = started
        self._ended = _NOTHING

    def note(self, now: float) -> None:
        """Note that a step is told now."""
        if math.isnan(self._ended):
            self._ended = now
        elif math.isnan(self.start_seconds):
            self.start_seconds = max(0.0, 2 * self._ended - now - self._started)


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
_is_claimed = False  # to report, and not only to count


def of_this_process(only_counts: bool = False) -> ScriptProgress | None:
    """Return this process's progress; None outside of Trainmaster, and where another process of the rank has the page.

    The first that steps has it, and who reports takes it from one that only counts. A process that a rank has forked
    after it had opened its page has none: it is a data loader's.
    """
    global _page, _opened_by, _is_claimed  # noqa: PLW0603 one process has one page
    is_first = _opened_by != os.getpid()
    if is_first:
        forked, _opened_by = _opened_by != 0, os.getpid()
        _page, _is_claimed = None, forked
    if not _is_claimed and (is_first or not only_counts):
        _is_claimed = not only_counts
        _page = _claimed(_page, os.environ, only_counts)
    return _page


def _claimed(page: ScriptProgress | None, environment: Mapping[str, str], only_counts: bool) -> ScriptProgress | None:
    """Return the progress of this process, if the page is, or now becomes, its own."""
    path = environment.get(names.ENV_PROGRESS_FILE)
    with suppress(OSError, ValueError, KeyError, codec.WireError):
        file = ProgressFile(path) if path else None
        plan = codec.decode(TrainingPlan, environment[names.ENV_TRAINING])
        if file is None:
            return None
        writer, left = file.writer, file.read()
        is_beside = writer not in (0, os.getpid()) and (is_alive(writer) or _began_before(left.updated))
        if not (is_beside and only_counts) and file.claim(os.getpid(), only_counts):
            if page is not None and writer == os.getpid():
                return page
            if is_beside:  # the other one has counted the same steps
                left = left._replace(step=0)
            attempt = int(environment[names.ENV_ATTEMPT])
            rank = environment.get(names.ENV_PLACE, environment.get("RANK", "")).partition("/")[0]
            lines = ScriptLines(Path(environment[names.ENV_CHECKPOINTS]), attempt) if rank == "0" else None
            before = left if writer and left.updated > 0 else None
            return ScriptProgress(file, attempt, plan.global_batch_size, lines, before)
    return page


def _began_before(moment: float) -> bool:
    """Return whether this is a process of multiprocessing's, maybe one of many, that was there at this moment."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:
        return False
    ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])  # see proc(5)
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return ticks / os.sysconf("SC_CLK_TCK") - asleep < moment
