"""ScriptState does in a rank of a script what the training loop does in a task's: resume, snapshot, save, leave.

It works on the script's own calls: `restore()` before the first step, `step(n)` after each. Between two steps it costs
a snapshot at most; every half second or so the ranks agree whether one of them was asked to stop.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from types import FrameType
from typing import Any

import torch
from trainmaster.wire.bounded_json import LARGEST_COUNT
from trainmaster.wire.names import EXIT_TERMINATED
from trainmaster.wire.printable import OneLineFormatter
from trainmaster.wire.strategies import INDEPENDENT

from trainmaster_trainer.agent import rank_errors
from trainmaster_trainer.batch_losses import Losses
from trainmaster_trainer.carried import Carried
from trainmaster_trainer.checkpoint.memory import Memory
from trainmaster_trainer.checkpoint.resume import resume
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.errors import (
    ConfigurationError,
    DamagedStateError,
    NonFiniteLossError,
    PlaceTakenError,
    SupersededError,
)
from trainmaster_trainer.fault_injection import Faults
from trainmaster_trainer.script_lines import ScriptLines
from trainmaster_trainer.script_progress import ScriptProgress
from trainmaster_trainer.scripts.comparing import Copies, check_alike
from trainmaster_trainer.scripts.meeting import STEP_SECONDS, await_all, leave, meet, telling_who_has_left
from trainmaster_trainer.scripts.script_measures import Measures
from trainmaster_trainer.scripts.script_objects import ScriptObjects
from trainmaster_trainer.scripts.unkept import SteppingOptimizers
from trainmaster_trainer.session_state import SessionState
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


class ScriptState(SessionState):
    """ScriptState keeps the state of a script's objects, together with the other ranks."""

    def __init__(self, objects: Mapping[str, Any], progress: ScriptProgress) -> None:
        self._given = objects
        self._progress = progress
        self._settings = _settings()
        self._keeper: _Keeper | None = None

    def restore(self) -> int:
        """Load the newest state that there is into the objects, and return after which step it was taken."""
        if self._keeper is not None:
            raise ConfigurationError("session.state: restore() is called twice. Call it once, before the first step.")
        if self._progress.step > 0:
            raise ConfigurationError(
                "session.state: restore() is called after a step was taken or reported, which would be lost. Call it "
                "before the first step."
            )
        strategy = self._settings.plan.strategy
        if strategy in INDEPENDENT:
            raise ConfigurationError(
                f"spec.strategy.type: members of {strategy} restart one by one, and session.state keeps one "
                "state of all ranks. Choose AllReduce."
            )
        _start_logging(self._settings)
        self._keeper = _Keeper(self._given, self._settings, self._progress)
        return self._keeper.last

    def step(self, n: int, *, last: bool = False) -> None:
        """Say that `n` steps are done: their state is kept. `last`: no further step comes."""
        if self._keeper is None:
            raise ConfigurationError("session.state: step() is called before restore(). Call restore() first.")
        number = _whole(n, self._keeper.last, self._keeper.begun_at)
        if last:
            self._keeper.end_with(number)
        self._keeper.step(number)


class _Keeper:
    """_Keeper is what there is from `restore` on."""

    def __init__(self, objects: Mapping[str, Any], settings: Settings, progress: ScriptProgress) -> None:
        self._settings, self._progress = settings, progress
        self._group = group = meet(settings)
        self._objects = ScriptObjects(objects, group, snapshots=not settings.plan.accelerator)
        check_alike(self._objects, group)
        self._copies = Copies(self._objects, group)
        self._stepping = SteppingOptimizers()
        self._measures = Measures(settings.plan, progress, group)
        self._kept = Carried(self._objects, self._measures.evaluations, None, None)
        self._saver = Saver(settings, group)
        self._saver.prepare()
        self._resumed = resumed = resume(self._saver.store, settings, group, self._kept)
        self._saver.go_on_from(resumed.durable_step)
        # Nothing waits in a snapshot on a CPU: a busy machine makes the steps longer, and is no reason for fewer.
        has_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        clock = time.perf_counter if has_gpu else time.thread_time
        self._memory = Memory(settings, group, self._kept, free=0.0, clock=clock)
        self._memory.start(resumed.step)
        self._losses = Losses(group)
        self._faults = Faults(os.environ, settings)
        self._lines = _lines(settings, progress)
        self._stop_asked = False
        self._end = 0  # the last step, where the script has said so at that step
        self._stride = 1  # steps of the training for each call of step()
        self.last = self.begun_at = self._saved = resumed.step
        # SIGTERM asks for a stop after the next step, unless the script has a handler of its own for it.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._asked)
        # Before the interpreter refuses new threads; `atexit` comes later.
        threading._register_atexit(self._finish, os.getpid())  # type: ignore[attr-defined]  # noqa: SLF001
        progress.went_on(resumed.step, resumed.durable_step)
        # Not before the next step: a loader that is asked for its state begins, and the script may not be ready for it.
        # The attempt before died over a save, or the state that it goes on from is another job's.
        missed = self._saver.missed(resumed.durable_step, resumed.step)
        self._owes = resumed.is_borrowed or missed
        if resumed.durable_step < resumed.step == self._objects.total:  # there will be no further step
            resumed.settled(group)
            self._save(resumed.step)
            self._insist(resumed.step)
        self._measures.leave_if_stopped()
        self._ended = time.monotonic()

    def end_with(self, n: int) -> None:
        """Take notice that no step comes after this one, whatever was announced. All ranks call it together."""
        if self._group.world_size > 1:
            store, ranks = self._group.store, self._group.world_size
            await_all("step(last=True)", store, self._group.rank, ranks, STEP_SECONDS)
        self._end = self._objects.total = n
        self._progress.reported(None, n, None)

    def step(self, n: int) -> None:
        """Note that `n` steps are done. All ranks call it after the same ones."""
        now = time.monotonic()
        seconds, self._ended = now - self._ended, now
        before, self.last = self.last, n
        if self._lines is not None and self._lines.step < n:
            self._lines.add(n, None, {}, _say)  # unless it was reported
        self._losses.add(n, None, 0, seconds)
        if before == self.begun_at:
            self._objects.check_kept(self._stepping)
            if self._group.world_size > 1:
                await_all("step()", self._group.store, self._group.rank, self._group.world_size, STEP_SECONDS)
                self._compare(n)
            self._owes |= self._resumed.settled(self._group).some_lack
        # Before a snapshot has it: the script that goes on from this one would not report these figures again.
        best = self._measures.look(before, n) and n != self._objects.total
        if best:
            self._save(n)
            self._saver.wait(needed=False)
        self._stride = n - before
        if self._memory.due(n, self._stride):
            self._memory.keep(n, self._losses.pending())
        self._progress.kept(n, self._saver.committed_step)
        early = self._faults.want_checkpoint(n)
        if not early:
            self._faults.after(n)
        due = n // self._settings.plan.checkpoint_every > before // self._settings.plan.checkpoint_every or self._owes
        self._owes = False
        stopping = (self._losses.due or due) and self._agree(n)
        if (due or stopping or n == self._objects.total) and not best:
            self._save(n)
            self._insist(n)
        if early:
            self._saver.wait(needed=False)
            self._faults.after(n)
        if stopping and n != self._objects.total:
            self._leave(n)
        self._measures.leave_if_stopped()

    def _agree(self, n: int) -> bool:
        """Agree with the other ranks on what there is to do. Return whether any of them was asked to stop."""
        with telling_who_has_left(n, self._group.store, self._group.rank, self._group.world_size):
            self._compare(n)
            agreement = self._losses.flush(self._stop_asked, self._memory.seconds, self._saver.last.is_refused)
        if agreement.losses:
            seconds = median(one.seconds for one in agreement.losses) / self._stride
            self._memory.adapt(seconds, agreement.snapshot_seconds)
        if agreement.refused:
            self._saver.wait(needed=False)
            self._check()
        return agreement.stop

    def _compare(self, n: int) -> None:
        """Compare the steps of all ranks, and learn how many there will be.

        Raises:
            ConfigurationError: they are not at the same one.
        """
        told = self._group.gather([n, self._progress.total])
        for rank, (other, _) in enumerate(told):
            if other != told[0][0]:
                raise ConfigurationError(
                    f"session.state: rank 0 calls step({told[0][0]}) while rank {rank} calls step({other}). Call it on "
                    "every rank after each step, with the same number."
                )
        steps = self._settings.plan.steps
        announced = max(total for _, total in told) if steps == LARGEST_COUNT else steps
        self._objects.total = self._end or announced

    def _save(self, n: int) -> None:
        self._progress.enter("save")
        self._copies.check(n)
        try:
            self._saver.save(n, self._kept.state(), before_commit=self._sync)
        except DamagedStateError as error:
            self._damaged(error)
        self._progress.enter("train")

    def _insist(self, n: int) -> None:
        """Wait until the last step is saved, and try again: there is no later save."""
        if n == self._objects.total:
            self._progress.enter("save")
            self._saver.insist(lambda: self._save(n), lambda: self._stop_asked)
            self._progress.kept(n, self._saver.committed_step)

    def _check(self) -> None:
        try:
            self._saver.check()
        except NonFiniteLossError as error:
            self._damaged(error)

    def _damaged(self, error: DamagedStateError) -> None:
        """Leave nothing to go on from that has the damage, and raise the error on all ranks."""
        self._memory.forget()
        self._saver.date(error)
        raise error

    def _sync(self) -> None:
        if self._lines is not None:
            self._lines.sync()

    def _leave(self, n: int) -> None:
        """End this rank: it was asked to stop, and what it has done is saved."""
        self._saver.wait(needed=False)
        self._check()
        self._progress.kept(n, self._saver.committed_step)  # the agent's last word names this checkpoint
        if self._saver.committed_step == n:
            log.info("Asked to stop: saved and left at step %d.", n)
        else:
            log.warning("Asked to stop: left at step %d, which is not saved: %s", n, self._saver.last.problem)
        raise SystemExit(EXIT_TERMINATED)

    def _asked(self, _signal: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    def _finish(self, process: int) -> None:
        """Wait for the save that is under way, at the end of the script."""
        if os.getpid() == process:
            if self.last == self.begun_at and self._progress.optimizer_steps:
                _say(
                    "",
                    f"step() was not called after restore(), so none of {self._progress.optimizer_steps} optimizer "
                    "steps is kept. Call it on every rank after each step.",
                )
            with suppress(SupersededError, PlaceTakenError):  # a later attempt goes on
                self._saver.wait(needed=False)
            saved = self._saver.committed_step
            self._progress.kept(self.last, saved)
            lacks = self._group.is_first and self.last > max(saved, self.begun_at) and self.last != self._objects.total
            if lacks and not hasattr(sys, "last_value"):  # an error is said already
                _say(
                    "",
                    f"the script ends after step {self.last}, which is not saved. Say how many steps there are, by "
                    "session.report(total=...) or spec.training.steps, or at the last one that it is, by "
                    "step(n, last=True), and the state after it is saved.",
                )
            leave(self._group.store, self._group.rank)


def _settings() -> Settings:
    settings = Settings.read(os.environ)
    if settings.plan.steps:
        return settings
    return dataclasses.replace(settings, plan=dataclasses.replace(settings.plan, steps=LARGEST_COUNT))


def _lines(settings: Settings, progress: ScriptProgress) -> ScriptLines | None:
    """Return the file of lines that this rank writes: each folder has one."""
    if progress.lines is not None or settings.plan.checkpoint_shared or settings.local_rank:
        return progress.lines
    return ScriptLines(settings.checkpoints, settings.attempt)


def _whole(n: Any, last: int, begun_at: int) -> int:
    """Return the number of a step, if it is a later one than the last.

    Raises:
        ConfigurationError: it is not.
    """
    try:
        number = n.__index__()
    except AttributeError:
        raise ConfigurationError(f"session.state: step({n!r:.80}) is no whole number of steps.") from None
    if last < number <= LARGEST_COUNT and not isinstance(n, bool):
        return int(number)
    came = f"restore() gave {last}" if last == begun_at else f"step({last})"
    raise ConfigurationError(
        f"session.state: step({number}) came after {came}. Say how many steps of the whole training are done: the "
        f"first one after restore() is {begun_at + 1}."
    )


def _say(_: str, text: str) -> None:
    rank_errors.say(f"trainmaster: session.state: {text}")


def _start_logging(settings: Settings) -> None:
    """Let our own lines be seen, in whatever way the script logs its own."""
    ours = logging.getLogger("trainmaster_trainer")
    if ours.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    form = f"%(asctime)s rank {settings.rank} %(levelname)s %(message)s"
    handler.setFormatter(OneLineFormatter(form, ours="trainmaster_trainer"))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
