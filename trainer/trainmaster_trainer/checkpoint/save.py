"""Saving: the step waits for a copy; all else happens in one background thread per rank.

Two phases. First every rank writes its shard and tells rank 0 through the store what it wrote. When all have, rank 0
writes the manifest, gives the folder its final name, and tells all how it went. A rank that dies in between leaves a
folder with a temporary name, which nobody reads and the next attempt removes.

At most one save is under way: a save that is due while the one before is still being written waits for it, because
`everySteps` is a promise of how much can be lost. A save that fails (a full disk, say) costs no training: it is said,
nothing of it stays, and the next one is tried; only the last one of a job must succeed. The agent reads of it
beside the progress page. That last one is tried again for a minute before it fails: a store that is away for a moment
at the end of weeks comes back. Where a later attempt has begun, which nobody could tell this one, it may not save, and
ends.

In private folders (`checkpoint_shared: false`) the first rank of each replica is a group of one and writes all.

Called by `loop.py`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor
from trainmaster.wire import codec
from trainmaster.wire.files import make_folder
from trainmaster.wire.progress import ProgressFile

from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.committer import Committer
from trainmaster_trainer.checkpoint.copier import Copier, Settled, TornCopyError, nothing_settled
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.manifest import Cursor, Manifest, model_sha256
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import open_remote
from trainmaster_trainer.checkpoint.retention import Retention
from trainmaster_trainer.checkpoint.shard import ShardRecord, write_shard
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.writers import Writers
from trainmaster_trainer.errors import ConfigurationError, NonFiniteLossError, PlaceTakenError, SupersededError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
AGAIN_PAUSES = (0.0, 5.0, 15.0, 30.0)  # seconds before each further try of the last save
_LOOK_SECONDS = 0.2  # how often somebody who pauses looks whether it is told to stop


class SaveFailedError(Exception):
    """A checkpoint could not be written."""


class Saver:
    """Writes this rank's part of every checkpoint."""

    def __init__(self, settings: Settings, group: Group, dataset: int = 0) -> None:
        self._settings = settings
        self.dataset = dataset  # how many samples it has; 0: not known here
        self._plan = settings.plan
        self._folder = settings.checkpoints
        self._rank = group.rank
        self._world_size = group.world_size
        self._gather = group.gather
        self._writes = self._plan.checkpoint_shared or group.local_rank == 0
        self._commits = group.is_first if self._plan.checkpoint_shared else self._writes
        self._writers = Writers(group, alone=not self._plan.checkpoint_shared)
        self._remote = open_remote(settings)
        self._retention = Retention(settings, self._remote)
        self._committer = Committer(settings, self._remote, self._retention) if self._remote else None
        self._tidies = self._remote is not None and group.local_rank == 0  # its pod has a folder of its own
        self._fence = layout.Fence(self._folder, settings.job_uid, settings.attempt, self._remote)
        self._copier = Copier()
        self._thread: threading.Thread | None = None
        self._problem = ""  # of the last save
        self._over: Exception | None = None  # why this process may not write any more
        self._page = _page(settings) if self._commits else None
        self._began = 0.0
        self.committed_step = 0

    def prepare(self) -> None:
        """Make the folder, clear it of what dead attempts left, and shut older attempts out.

        Raises:
            ConfigurationError: this process may not write there.
        """
        if not (self._commits or self._tidies):
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            layout.clean(self._folder)
            if not self._commits:
                return
            if self._remote:
                self._remote.clean()
            self._fence.close()
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise ConfigurationError(
                f"spec.checkpoint.storage: {error}. The trainer's user must be able to write there."
            ) from None

    @property
    def optimizer_waited(self) -> float:
        """Seconds that optimizer steps have waited for copies so far."""
        return self._copier.waited

    def due(self, step: int) -> bool:
        """Is a checkpoint to be written after this step? Always after the last."""
        return step % self._plan.checkpoint_every == 0 or step == self._plan.steps

    def missed(self, durable: int, step: int) -> bool:
        """Whether a checkpoint was due after step `durable`, of which the newest one is, and not later than `step`."""
        every = self._plan.checkpoint_every
        return step > durable and (step // every > durable // every or step >= self._plan.steps)

    def save(
        self, step: int, state: State, before_commit: Callable[[], None], settled: Settled = nothing_settled
    ) -> None:
        """Copy what this rank writes, and write it in the background. All ranks call it after the same step.

        `settled`: whether a tensor changes in nothing but an optimizer's step; such are copied in the background too.
        `before_commit` runs in the background too, when the checkpoint is about to become visible.
        """
        self.wait(needed=False)
        self._began = time.monotonic()
        if not self._writes:
            self._writers.collect(state, lambda _: {})
            return
        tensors = self._writers.collect(state, lambda mine: self._copier.begin(mine, settled))
        scalars = json.loads(json.dumps(state.scalars))
        self._thread = threading.Thread(
            target=self._run, args=(step, tensors, scalars, before_commit), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait(self, needed: bool = True) -> None:
        """Wait for the save that is under way.

        Raises:
            SaveFailedError: it failed and was `needed`.
            SupersededError, PlaceTakenError: a later attempt has begun, or another job in this folder.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._over is not None:
            raise self._over
        if self._problem and needed:
            raise SaveFailedError(self._problem)

    def close(self) -> None:
        """Let the optimizers go, and with them the memory of the copy; nothing is under way any more."""
        self._copier.close()

    def insist(self, again: Callable[[], None], stopped: Callable[[], bool]) -> None:
        """Wait for the last save; where it fails, save `again`, a few times. All ranks call it.

        Raises:
            SaveFailedError: all tries failed, or some rank is told to stop meanwhile.
        """
        for pause in AGAIN_PAUSES:
            self.wait(needed=False)
            if not any(self._gather(bool(self._problem))):
                return
            deadline = time.monotonic() + pause
            while time.monotonic() < deadline and not stopped():
                time.sleep(min(_LOOK_SECONDS, pause))
            if any(self._gather(stopped())):
                break
            again()
        self.wait(needed=False)
        problems = [text for text in self._gather(self._problem) if text]
        if problems:
            raise SaveFailedError(problems[0])

    @contextmanager
    def brought_home(self) -> Iterator[None]:
        """An error that meets all ranks at once does not cost the save that is under way."""
        try:
            yield
        except NonFiniteLossError:
            self.wait(needed=False)
            raise
        except Exception:
            if self._writers.count == 1:  # and no peer is killed meanwhile because of it
                self.wait(needed=False)
            raise

    def _run(
        self, step: int, tensors: dict[str, Tensor], scalars: dict[str, Any], before_commit: Callable[[], None]
    ) -> None:
        try:
            self._writers.report(self._copy_and_write(step, tensors))
            if self._commits:
                self._writers.publish(self._commit(step, scalars, before_commit))
            problem = self._writers.outcome()
        except Exception as error:  # noqa: BLE001 (the main thread must hear of whatever it was)
            problem = f"{type(error).__name__}: {error}"
        self._problem = problem
        if problem:
            log.warning(
                "The checkpoint of step %d was not written, the newest one is that of step %d: %s",
                step, self.committed_step, problem,
            )  # fmt: skip
        else:
            self.committed_step = step
        if self._tidies or (problem and self._commits):
            with suppress(OSError):  # no half checkpoint takes the room that the next one needs
                layout.remove(self._temporary(step))
        if self._page:
            self._page.write_problem(step, problem)
        if problem and self._commits:
            self._sweep(step)

    def _sweep(self, step: int) -> None:
        """Nor takes a failed save the room in the object store that the next one needs."""
        try:
            if self._committer and not self._shut_out():
                self._committer.tidy(failed=self._key(step))
        except Exception as error:  # noqa: BLE001 (whatever it was: the next save tries again)
            log.warning("What the save of step %d left could not be deleted: %s", step, self._problem_of(error))

    def _copy_and_write(self, step: int, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Write each tensor as soon as it is copied; what to report. Never raises: all ranks wait for this word."""
        try:
            with ThreadPoolExecutor(1, "checkpoint-write") as beside:
                try:
                    writing = beside.submit(self._write, step, tensors)
                finally:
                    self._copier.finish()  # in any case: the optimizer waits for it
                return {"record": codec.to_plain(writing.result())}
        except Exception as error:  # noqa: BLE001 (whatever it was)
            return {"problem": self._problem_of(error)}

    def _write(self, step: int, tensors: dict[str, Tensor]) -> ShardRecord:
        folder = self._temporary(step)
        make_folder(folder)
        path = folder / layout.shard_name(self._writers.rank, self._writers.count)
        record = write_shard(path, tensors, self._copier.arrived, self._copier.image)
        layout.sync_folder(folder)
        if self._remote:
            self._upload(path, step)
        return record

    def _problem_of(self, error: Exception) -> str:
        kind = "" if isinstance(error, OSError | ConfigurationError | TornCopyError) else f"{type(error).__name__}: "
        return f"rank {self._rank}: {kind}{error}"

    def _commit(self, step: int, scalars: dict[str, Any], before_commit: Callable[[], None]) -> str:
        """What went wrong, or nothing. Never raises: all ranks wait for this word."""
        try:
            reports = self._writers.reports()
            problems = [report["problem"] for report in reports if "problem" in report]
            if problems:
                return "; ".join(problems)
            shards = tuple(codec.from_plain(ShardRecord, report["record"]) for report in reports)
            before_commit()
            manifest = self._manifest(step, shards, scalars)
            if self._committer:
                return self._publish_remotely(self._committer, step, manifest)
            layout.write_file(self._temporary(step) / layout.MANIFEST, manifest.encode())
            return self._publish(step)
        except Exception as error:  # noqa: BLE001 (whatever it was)
            return self._problem_of(error)

    def _publish(self, step: int) -> str:
        temporary = self._temporary(step)
        if problem := self._shut_out():
            layout.remove(temporary)
            return problem
        if self._has_good(step):
            layout.remove(temporary)  # the same step of an earlier attempt: first come, first kept
        else:
            layout.publish(temporary, layout.step_folder(self._folder, step))
        with self._after_commit(step):
            self._retention.prune_folder(step)
        return ""

    def _shut_out(self) -> str:
        """Who may write here instead of this process, which the next `wait` ends; nothing if it may."""
        try:
            self._fence.check()
        except (SupersededError, PlaceTakenError) as error:
            self._over = error
            return str(error)
        return ""

    @contextmanager
    def _after_commit(self, step: int) -> Iterator[None]:
        """What goes wrong now is said, and no more: the checkpoint stands."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever it was)
            log.warning("The checkpoint of step %d stands; after it: %s", step, self._problem_of(error))

    def _has_good(self, step: int) -> bool:
        """Whether a good checkpoint of this step stands, of this training and not of a branch that was given up."""
        try:
            read(self._folder, step, trusted=self._retention.way.trusting(self._settings.job_uid))
        except CorruptCheckpointError:
            return False
        return True

    def _upload(self, path: Path, step: int) -> None:
        if self._remote:
            self._remote.put_file(path, f"{self._key(step)}/{path.name}")
            path.unlink()

    def _publish_remotely(self, committer: Committer, step: int, manifest: Manifest) -> str:
        """A copy of the manifest stays here, where the agent looks."""
        if problem := self._shut_out():
            committer.remove(self._key(step))
            return problem
        committer.commit(self._key(step), step, manifest.encode())
        with self._after_commit(step):
            here = layout.step_folder(self._folder, step)
            make_folder(here)
            layout.write_file(here / layout.MANIFEST, manifest.encode())
            self._retention.prune_folder(step)
        with self._after_commit(step):
            committer.tidy()
        return ""

    def _key(self, step: int) -> str:
        return f"step-{step:08d}.{self._settings.run_key}"

    def _temporary(self, step: int) -> Path:
        return layout.saving_folder(self._folder, step, self._settings.run_key)

    def _manifest(self, step: int, shards: tuple[ShardRecord, ...], scalars: dict[str, Any]) -> Manifest:
        plan = self._plan
        tensors = {name: record for shard in shards for name, record in shard.tensors.items()}
        return Manifest(
            step=step,
            attempt=self._settings.attempt,
            world_size=self._world_size,
            strategy=plan.strategy,
            cursor=Cursor(step, step * plan.global_batch_size, plan.global_batch_size, plan.seed, self.dataset),
            time=time.time(),
            model_sha256=model_sha256(tensors),
            shards=shards,
            scalars=scalars,
            job=self._settings.job_uid,
            seconds=round(time.monotonic() - self._began, 3),
        )


def _page(settings: Settings) -> ProgressFile | None:
    """Mapped a second time: this one belongs to the background thread."""
    path = settings.progress_file
    return ProgressFile(str(path)) if path and path.exists() else None
