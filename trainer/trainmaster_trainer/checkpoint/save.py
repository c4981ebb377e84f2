"""Saving: the step waits for a copy; all else happens in one background thread per rank.

Two phases. First every rank writes its shard and tells rank 0 through the store what it wrote. When all have, rank 0
writes the manifest, gives the folder its final name, and tells all how it went. A rank that dies in between leaves a
folder with a temporary name, which nobody reads and the next attempt removes.

At most one save is under way: a save that is due while the one before is still being written waits for it, because
`everySteps` is a promise of how much can be lost.

In private folders (`checkpoint_shared: false`) the first rank of each replica is a group of one and writes all.

Called by `loop.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from trainmaster.wire import codec

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.load import RNG, read
from trainmaster_trainer.checkpoint.manifest import Cursor, Manifest, model_sha256
from trainmaster_trainer.checkpoint.shard import BadCheckpoint, ShardRecord, write_shard
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
PEERS_TIMEOUT = timedelta(minutes=30)
FAILURES_ALLOWED = 2  # in a row: a full disk must not go unnoticed for long


class SaveFailed(Exception):
    """A checkpoint could not be written."""


class Saver:
    """Writes this rank's part of every checkpoint."""

    def __init__(self, settings: Settings, group: Group) -> None:
        self._settings = settings
        self._group = group
        self._folder = settings.checkpoints
        shared = settings.plan.checkpoint_shared
        self._writes = shared or group.local_rank == 0
        self._commits = group.is_first if shared else self._writes
        self._writers = Writers(group, alone=not shared)
        self._thread: Optional[threading.Thread] = None
        self._failures: List[str] = []
        self.begun_step = 0
        self.committed_step = 0

    def prepare(self) -> None:
        """Make the folder, clear it of what dead attempts left, and shut older attempts out."""
        if self._commits:
            self._folder.mkdir(parents=True, exist_ok=True)
            layout.clean(self._folder)
            layout.raise_fence(self._folder, self._settings.attempt)

    def save(self, step: int, state: State) -> None:
        """Copy what this rank writes, and write it in the background."""
        self.wait(needed=False)
        self.begun_step = step
        generators = self._generators()
        mine = self._writers.mine(state.tensors)
        if not self._writes:
            return
        copies = {name: state.tensors[name].to("cpu", copy=True).contiguous() for name in mine}
        scalars = json.loads(json.dumps(state.scalars))
        self._thread = threading.Thread(
            target=self._run, args=(step, {**copies, **generators}, scalars), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait(self, needed: bool = True) -> None:
        """Wait for the save that is under way.

        Raises:
            SaveFailed: it failed and was `needed`, or it was one too many.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failures and (needed or len(self._failures) > FAILURES_ALLOWED):
            raise SaveFailed(self._failures[-1])

    def _generators(self) -> Dict[str, Tensor]:
        """The random number generators that go into this rank's shard: its own, or all of them."""
        own = {f"{RNG}{self._group.rank}/{name}": state for name, state in randomness.capture().items()}
        if self._settings.plan.checkpoint_shared:
            return own
        texts = {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in own.items()}
        pages = self._group.gather(texts)
        return {
            name: torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
            for page in pages
            for name, text in page.items()
        }

    def _run(self, step: int, tensors: Dict[str, Tensor], scalars: Dict[str, Any]) -> None:
        try:
            self._writers.report(step, self._write(step, tensors))
            if self._commits:
                self._writers.publish(step, self._commit(step, scalars))
            problem = self._writers.outcome(step)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self._failures.append(problem)
            log.warning("The checkpoint of step %d was not written: %s", step, problem)
        else:
            self._failures.clear()
            self.committed_step = step

    def _write(self, step: int, tensors: Dict[str, Tensor]) -> Dict[str, Any]:
        folder = layout.saving_folder(self._folder, step, self._settings.run_key)
        try:
            folder.mkdir(exist_ok=True)
            record = write_shard(folder / layout.shard_name(self._writers.rank, self._writers.count), tensors)
            layout.sync_folder(folder)
        except OSError as error:
            return {"problem": f"rank {self._group.rank}: {error}"}
        return {"record": codec.to_plain(record)}

    def _commit(self, step: int, scalars: Dict[str, Any]) -> str:
        """What went wrong, or nothing."""
        reports = self._writers.reports(step)
        problems = [report["problem"] for report in reports if "problem" in report]
        if problems:
            return "; ".join(problems)
        shards = tuple(codec.from_plain(ShardRecord, report["record"]) for report in reports)
        temporary = layout.saving_folder(self._folder, step, self._settings.run_key)
        try:
            layout.write_file(temporary / layout.MANIFEST, self._manifest(step, shards, scalars).encode())
            return self._publish(step, temporary)
        except OSError as error:
            return f"rank {self._group.rank}: {error}"

    def _publish(self, step: int, temporary: Path) -> str:
        newer = layout.fence(self._folder)
        if newer > self._settings.attempt:
            layout.remove(temporary)
            return f"attempt {newer} has begun; attempt {self._settings.attempt} may not save any more"
        if _is_good(self._folder, step):
            layout.remove(temporary)  # the same step of an earlier attempt: first come, first kept
        else:
            layout.publish(temporary, layout.step_folder(self._folder, step))
        for old in layout.saved_steps(self._folder)[self._settings.plan.checkpoint_keep :]:
            if old != step:
                layout.remove(layout.step_folder(self._folder, old))
        return ""

    def _manifest(self, step: int, shards: tuple[ShardRecord, ...], scalars: Dict[str, Any]) -> Manifest:
        plan = self._settings.plan
        tensors = {name: record for shard in shards for name, record in shard.tensors.items()}
        return Manifest(
            step=step,
            attempt=self._settings.attempt,
            world_size=self._group.world_size,
            strategy=plan.strategy,
            cursor=Cursor(step, step * plan.global_batch_size, plan.global_batch_size, plan.seed),
            time=time.time(),
            model_sha256=model_sha256(tensors),
            shards=shards,
            scalars=scalars,
            rng_ranks=tuple(sorted({int(name.split("/")[1]) for name in tensors if name.startswith(RNG)})),
            job=self._settings.job_uid,
        )


def _is_good(folder: Path, step: int) -> bool:
    try:
        read(folder, step)
    except BadCheckpoint:
        return False
    return True


class Writers:
    """The ranks that write one folder together: who writes what, and what they tell rank 0."""

    def __init__(self, group: Group, alone: bool) -> None:
        self._group = group
        self._alone = alone or group.world_size == 1
        self.rank = 0 if self._alone else group.rank
        self.count = 1 if self._alone else group.world_size
        # The thread's own connection: a blocking wait on a shared one would hold up the main thread.
        self._store = dist.HashStore() if self._alone else group.store.clone()
        self._store.set_timeout(PEERS_TIMEOUT)

    def mine(self, tensors: Dict[str, Tensor]) -> List[str]:
        """The tensors that this rank writes."""
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in sorted(tensors.items())}
        if self._alone:
            return list(sizes)
        text = json.dumps(sizes)
        digests = self._group.gather(hashlib.sha256(text.encode()).hexdigest())
        # Replicas all have the same; only ranks that split a model need to tell each other what they hold.
        same = len(set(digests)) == 1
        holdings = [sizes] * self.count if same else self._group.gather(sizes)
        return [name for name, owner in divide(holdings).items() if owner == self.rank]

    def report(self, step: int, report: Dict[str, Any]) -> None:
        """Phase one: what this rank wrote."""
        self._store.set(f"checkpoint/{step}/{self.rank}", json.dumps(report))

    def reports(self, step: int) -> List[Dict[str, Any]]:
        """What all ranks wrote, when all have."""
        keys = [f"checkpoint/{step}/{rank}" for rank in range(self.count)]
        return [json.loads(self._store.get(key)) for key in keys]

    def publish(self, step: int, problem: str) -> None:
        """Phase two: tell all ranks how it went."""
        self._store.set(f"checkpoint/{step}/problem", json.dumps(problem))

    def outcome(self, step: int) -> str:
        """How it went, when that is known."""
        return str(json.loads(self._store.get(f"checkpoint/{step}/problem")))


def divide(holdings: List[Dict[str, int]]) -> Dict[str, int]:
    """Who writes each tensor: the biggest first, to the rank that has it and the least to write so far."""
    holders: Dict[str, List[int]] = {}
    sizes: Dict[str, int] = {}
    for rank, holding in enumerate(holdings):
        for name, size in holding.items():
            holders.setdefault(name, []).append(rank)
            sizes[name] = size
    load = [0] * len(holdings)
    owners = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        owner = min(holders[name], key=lambda rank: (load[rank], rank))
        owners[name] = owner
        load[owner] += sizes[name]
    return owners
