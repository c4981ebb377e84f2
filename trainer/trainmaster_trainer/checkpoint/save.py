"""Save checkpoints: the step waits for a copy; all else happens in one background thread per rank.

There are two phases. First every rank writes its shard and tells rank 0 through the store what it wrote. When all have,
rank 0 writes the manifest, gives the folder its final name, and tells all how it went. A rank that dies in between
leaves a folder with a temporary name, which no reader takes for a checkpoint and the next attempt removes.

At most one save is under way: a save that is due while the one before is still being written waits for it, because
`everySteps` is a promise of how much can be lost. A save that fails (on a full disk, say) does not end the training: it
is logged and removed, and the next one is tried. Only the last save of a job must succeed; it is tried again for a
minute before it fails, as a store may be away for a moment. A state that is not finite is no checkpoint: each rank
looks at what it writes (`soundness.py`), and training ends over it (`check`); the agent reads of it beside the progress
page. Where a later attempt has begun, and this one was not told, this one may not save, and ends.

In private folders (`checkpoint_shared: false`) the first rank of each replica is a group of one and writes all.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from trainmaster.wire import codec
from trainmaster.wire.messages import CheckpointRecord
from trainmaster.wire.progress_page import ProgressFile

from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.copier import Copier, Settled
from trainmaster_trainer.checkpoint.manifest_check import Cursor, Manifest, glance, model_sha256
from trainmaster_trainer.checkpoint.shard import ShardRecord, write_shard
from trainmaster_trainer.checkpoint.soundness import UnsoundError
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores import open_store
from trainmaster_trainer.checkpoint.stores.save_problems import problem_of
from trainmaster_trainer.checkpoint.writers import OUTCOME, Writers
from trainmaster_trainer.errors import (
    ConfigurationError,
    DamagedStateError,
    NonFiniteLossError,
    PlaceTakenError,
    SupersededError,
)
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
AGAIN_PAUSES = (0.0, 5.0, 15.0, 30.0)  # seconds before each further try of the last save
_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NOT_FINITE = (
    "The state after step {step} is not finite, so no checkpoint of it is kept: {why}. Lower the learning rate or clip "
    "the gradients, or look for what has no gradient at this step's samples, such as the root of 0."
)
_LOOK_SECONDS = 0.2  # how often a pause is interrupted to look whether this rank is told to stop


class SaveFailedError(Exception):
    """A checkpoint could not be written. The message has the cause."""

    # Where it was raised tells nothing more, so the rank's process shows the message alone.
    trainmaster_says_all = True


@dataclass(frozen=True)
class SaveOutcome:
    """SaveOutcome is how a save went, as far as this rank knows."""

    step: int = 0
    problem: str = ""  # "" if it is good, or other ranks write
    is_refused: bool = False  # the problem is that the state is not finite; other ranks may know of theirs
    record: CheckpointRecord | None = None  # where this rank has published it


class Saver:
    """Saver writes this rank's part of every checkpoint."""

    def __init__(self, settings: Settings, group: Group, dataset: int = 0) -> None:
        self._settings, self._group = settings, group
        self.dataset = dataset  # how many samples it has; 0: not known here
        self.store = open_store(settings, group)  # this attempt has it for all that it does there
        self._writers = Writers(group, alone=not self.store.shared)
        self._copier = Copier()
        self._page = _page(settings) if self.store.commits else None
        self._thread: threading.Thread | None = None
        self.last = SaveOutcome()  # of the save that ended last
        self.committed_step = 0  # of the newest checkpoint, as far as this rank knows

    def prepare(self) -> None:
        """Make the folder, clear it of what dead attempts left, and shut older attempts out.

        Raises:
            ConfigurationError: this process may not write there.
            SaveFailedError: there is no room, or the file system is read-only.
        """
        try:
            self.store.fence()
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise ConfigurationError(
                f"spec.checkpoint.storage: {error}. The trainer's user must be able to write there."
            ) from None
        except OSError as error:
            if error.errno not in _NO_PLACE:
                raise
            folder = self._settings.checkpoints
            raise SaveFailedError(
                f"No checkpoint can be kept in {folder}: [Errno {error.errno}] {error.strerror}. Make room there, or "
                "name another place (spec.checkpoint.storage; --workdir of a run)."
            ) from None

    def go_on_from(self, step: int) -> None:
        """Note the step of the newest checkpoint, which an attempt before has saved.

        That of the last step is told to the agent at once: there is no later one, and the job may be over before the
        agent has read it from a slow storage.
        """
        self.committed_step = step
        if self._page is None or step < self._settings.plan.steps:
            return
        with suppress(OSError):
            seen = glance(layout.step_folder(self._settings.checkpoints, step), step)
            if seen is not None:
                self._page.write_checkpoint(CheckpointRecord(seen.step, seen.time, seen.model_sha256, seen.seconds))

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is to be written after this step. It always is after the last."""
        return step % self._settings.plan.checkpoint_every == 0 or step == self._settings.plan.steps

    def missed(self, durable: int, step: int) -> bool:
        """Return whether a checkpoint was due after step `durable`, that of the newest one, and up to `step`."""
        every = self._settings.plan.checkpoint_every
        return step > durable and (step // every > durable // every or step >= self._settings.plan.steps)

    def save(
        self, step: int, state: State, before_commit: Callable[[], None], settled: Settled = lambda _: False
    ) -> None:
        """Copy what this rank writes, and write it in the background. All ranks call it after the same step.

        `settled`: whether a tensor changes in nothing but an optimizer's step; such are copied in the background too.
        `before_commit` runs in the background too, when the checkpoint is about to become visible.
        """
        self.wait(needed=False)
        self.check()
        began = time.monotonic()
        if not self.store.writes:
            self._writers.collect(state, lambda _: {})
            return
        tensors = self._writers.collect(state, lambda mine: self._copier.begin(mine, settled))
        scalars = json.loads(json.dumps(state.scalars))
        self._thread = threading.Thread(
            target=self._run, args=(step, tensors, scalars, began, before_commit), name="checkpoint", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Check that the last state that was to be saved was finite. All ranks call it together, after `wait`.

        Raises:
            NonFiniteLossError: it was not, on some rank.
        """
        for refused in filter(
            None, self._of_all([self.last.step, self.last.problem] if self.last.is_refused else None)
        ):
            step, why = refused
            raise NonFiniteLossError(why, step)

    def _of_all(self, own: Any) -> list[Any]:
        """Return what all ranks know of their saves; those that write one checkpoint together know the same."""
        return [own] if self.store.shared else self._group.gather(own)

    def wait(self, needed: bool = True) -> None:
        """Wait for the save that is under way.

        Raises:
            SaveFailedError: it failed and was `needed`.
            SupersededError, PlaceTakenError: a later attempt has begun, or another job in this folder.
        """
        self._join()
        if self.store.over is not None:
            raise self.store.over
        if self.last.problem and needed:
            raise SaveFailedError(self.last.problem)

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Remove the hook from the optimizers and free the memory of the copy. No save may be under way."""
        self._copier.close()

    def insist(self, again: Callable[[], None], stopped: Callable[[], bool]) -> None:
        """Wait for the last save; where it fails, save `again`, a few times. All ranks call it.

        Raises:
            SaveFailedError: all tries failed, or some rank is told to stop meanwhile.
            NonFiniteLossError: the state is not finite; no further try would change that.
        """
        for pause in AGAIN_PAUSES:
            self.wait(needed=False)
            self.check()
            if not any(self._group.gather(bool(self.last.problem))):
                return
            deadline = time.monotonic() + pause
            while time.monotonic() < deadline and not stopped():
                time.sleep(min(_LOOK_SECONDS, pause))
            if any(self._group.gather(stopped())):
                break
            again()
        self.wait(needed=False)
        self.check()
        problems = [text for text in self._group.gather(self.last.problem) if text]
        if problems:
            raise SaveFailedError(problems[0])

    @contextmanager
    def brought_home(self) -> Iterator[None]:
        """Wait for the save that is under way if an error within hits all ranks, so that the save is not lost."""
        try:
            yield
        except DamagedStateError as error:
            self.date(error)
            raise
        except Exception:
            if self._writers.count == 1:  # and no peer is killed meanwhile because of it
                self.wait(needed=False)
            raise

    def date(self, error: DamagedStateError) -> None:
        """Wait for the save, and note in the error before which step a restart goes on. All ranks call it together.

        That is the step whose state was refused, else that of the newest checkpoint, which may hold the cause. The
        agent's and the operator's own view of the storage may be older.
        """
        self._join()
        if error.resume_before is None:
            told = self._of_all([self.last.step if self.last.is_refused else None, self.committed_step])
            refused = [step for step, _ in told if step is not None]
            error.resume_before = max(1, min(refused) if refused else max(committed for _, committed in told))

    def _run(
        self,
        step: int,
        tensors: dict[str, Tensor],
        scalars: dict[str, Any],
        began: float,
        before_commit: Callable[[], None],
    ) -> None:
        """Write this rank's part, commit the checkpoint where that is this rank's office, and note how it went."""
        record, refused = None, False
        try:
            with self._writers.one_save():
                self._writers.put(self._writers.rank, self._copy_and_write(step, tensors))
                if self.store.commits:
                    problem, refused, record = self._commit(step, scalars, began, before_commit)
                    self._writers.put(OUTCOME, [problem, refused])
                problem, refused = self._writers.get(OUTCOME, 0)
        except Exception as error:  # noqa: BLE001 (the main thread must hear of whatever it was)
            problem, refused = f"{type(error).__name__}: {error}", False
        self.last = SaveOutcome(step, problem, refused, record)
        if problem:
            log.warning(
                "The checkpoint of step %d was not written, the newest one is that of step %d: %s",
                step, self.committed_step, problem,
            )  # fmt: skip
        else:
            self.committed_step = step
        if self._page:
            self._page.write_problem(step, problem)
        self.store.prune(step, failed=bool(problem))

    def _copy_and_write(self, step: int, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Write each tensor as soon as it is copied; return the report. Never raises: all ranks wait for it."""
        try:
            with ThreadPoolExecutor(1, "checkpoint-write") as beside:
                try:
                    writing = beside.submit(self._write, step, tensors)
                finally:
                    self._copier.finish()  # in any case: the optimizer waits for it
                return {"record": codec.to_plain(writing.result())}
        except UnsoundError as error:
            return {"problem": f"rank {self._group.rank}: {error}", "refused": True}
        except Exception as error:  # noqa: BLE001 (whatever it was)
            return {"problem": problem_of(error, self._group.rank)}

    def _write(self, step: int, tensors: dict[str, Tensor]) -> ShardRecord:
        with self.store.begin(step) as path:
            return write_shard(path, tensors, self._copier.arrived, self._copier.image, self._writers.allowed)

    def _commit(
        self, step: int, scalars: dict[str, Any], began: float, before_commit: Callable[[], None]
    ) -> tuple[str, bool, CheckpointRecord | None]:
        """Return what went wrong, or "", whether it is the state, and what became visible.

        It never raises: all ranks wait for the answer. The agent is told, who need not read storage to know of it.
        """
        try:
            reports = self._writers.reports()
            refusals = [report["problem"] for report in reports if "refused" in report]
            if refusals:
                return _NOT_FINITE.format(step=step, why="; ".join(refusals)), True, None
            problems = [report["problem"] for report in reports if "problem" in report]
            if problems:
                return "; ".join(problems), False, None
            shards = tuple(codec.from_plain(ShardRecord, report["record"]) for report in reports)
            plan = self._settings.plan
            made = Manifest(
                step=step,
                attempt=self._settings.attempt,
                world_size=self._group.world_size,
                strategy=plan.strategy,
                cursor=Cursor(step, step * plan.global_batch_size, plan.global_batch_size, plan.seed, self.dataset),
                time=time.time(),
                model_sha256=model_sha256(shards),
                shards=shards,
                scalars=scalars,
                job=self._settings.job_uid,
                seconds=round(time.monotonic() - began, 3),
            )
            before_commit()
            self.store.commit(step, made)
        except (SupersededError, PlaceTakenError) as error:
            return str(error), False, None
        except Exception as error:  # noqa: BLE001 (whatever it was)
            return problem_of(error, self._group.rank), False, None
        record = CheckpointRecord(step, made.time, made.model_sha256, made.seconds)
        if self._page:
            self._page.write_checkpoint(record)
        return "", False, record


def _page(settings: Settings) -> ProgressFile | None:
    """Map the progress page a second time, for the background thread; None if there is none."""
    path = settings.progress_file
    return ProgressFile(str(path)) if path and path.exists() else None
