"""Collect what heartbeats are made of: the supervisor's state, the ranks' progress pages, the newest checkpoint.

The engine puts the state up; the reporter's threads compose messages from it at any time. Who commits a checkpoint
writes its record beside the progress page, so the last heartbeat of an attempt has it. What others have committed, as
before this agent began, is read from storage, which may hang: who reads there holds no lock, and heartbeats go on
without what it reads.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Dict, Mapping, Optional, Tuple

from trainmaster.wire.manifest import glance, step_folder
from trainmaster.wire.messages import CheckpointRecord, Figures, Heartbeat, RankProgress, Rendezvous, UnsavedCheckpoint
from trainmaster.wire.progress_page import ProgressPage

from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.supervise import Agent, member_of

# A manifest is mostly read within a millisecond, and the heartbeat that can tell of it should.
_READING_SECONDS = 0.2


class StatusCollector:
    """One per agent."""

    def __init__(self, settings: AgentSettings, files: Files) -> None:
        self._settings = settings
        self._files = files
        self._lock = threading.Lock()
        self._digest = ""
        self._sequence = 0
        self._agent = Agent(settings.role, settings.index)
        self._offer = Rendezvous(0, "")
        self._trackers: Mapping[str, str] = MappingProxyType({})
        self._checkpoint: Optional[CheckpointRecord] = None
        self._newest = 0  # step of the newest checkpoint that ranks here know of
        self._reading = False
        self.orders_seen = ""
        self.read = read_checkpoint

    def put_up(self, agent: Agent, offer: Rendezvous, trackers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Set what the next heartbeats say."""
        with self._lock:
            if agent.roster is not self._agent.roster:
                self._digest = agent.roster.digest if agent.roster is not None else ""
            self._agent, self._offer, self._trackers = agent, offer, trackers

    def compose(self, hold: bool) -> Heartbeat:
        """A heartbeat of this moment, with a sequence number of its own."""
        self._find_checkpoint()
        with self._lock:
            self._sequence += 1
            agent = self._agent
            pages, unsaved = self._files.read_pages(agent.attempt, agent.start or 0), self._files.read_problems()
            self._take_written()  # later than the state: the last word of ranks names their last checkpoint
            return Heartbeat(
                job=self._settings.job,
                job_uid=self._settings.job_uid,
                role=self._settings.role,
                index=self._settings.index,
                incarnation=self._settings.incarnation,
                pod_uid=self._settings.pod_uid,
                sequence=self._sequence,
                state=agent.state,
                attempt=agent.attempt,
                offer=self._offer,
                rendezvous=_rendezvous(agent),
                roster_digest=self._digest,
                ranks=rank_progress(pages, unsaved, self._files.read_figures()),
                exit=agent.exit,
                checkpoint=self._checkpoint,
                orders_seen=self.orders_seen,
                hold=hold,
                start=agent.start,
                stalled=agent.stalled,
                good_end=agent.good_end,
                warm=agent.warm,
                takes_204=True,
                trackers=dict(self._trackers),
            )

    def _take_written(self) -> None:
        """Take the newest checkpoint that a rank here has committed, and look whether ranks know of a newer one."""
        written = max(self._files.read_checkpoints(), key=lambda record: record.step, default=None)
        known = max((page.checkpoint_step for page in self._files.read_all_pages().values()), default=0)
        self._newest = max(known, written.step if written is not None else 0)
        if written is not None and (written.step == self._newest or _is_newer(written, self._checkpoint)):
            self._checkpoint = written

    def _find_checkpoint(self) -> None:
        """Have the newest one read from storage, if no rank here has committed it, by a thread that may hang alone."""
        with self._lock:
            self._take_written()
            step = self._newest
            if self._reading or step <= 0 or (self._checkpoint is not None and self._checkpoint.step == step):
                return
            self._reading = True
        reader = threading.Thread(target=self._read_checkpoint, args=[step], name="checkpoint", daemon=True)
        try:
            reader.start()
        except RuntimeError:  # there can be no more threads at the moment
            self._reading = False
            return
        reader.join(_READING_SECONDS)

    def _read_checkpoint(self, step: int) -> None:
        record = self.read(self._settings.checkpoints, step)
        with self._lock:
            self._reading = False
            # Ranks may have committed a newer one meanwhile.
            if record is not None and (step == self._newest or _is_newer(record, self._checkpoint)):
                self._checkpoint = record


def _is_newer(record: CheckpointRecord, than: Optional[CheckpointRecord]) -> bool:
    return than is None or record.step > than.step


def _rendezvous(agent: Agent) -> Optional[Rendezvous]:
    """Return where the attempt meets, with the ports of this replica's ranks where peers reach them one by one."""
    if agent.roster is None:
        return None
    member = member_of(agent.roster, agent.role, agent.index)
    return replace(agent.roster.rendezvous, ports=member.ports if member is not None else ())


def read_checkpoint(folder: str, step: int) -> Optional[CheckpointRecord]:
    """The manifest of a checkpoint; None while it is not there (a shared folder may show it later)."""
    try:
        seen = glance(step_folder(Path(folder), step), step)
    except OSError:
        return None
    return CheckpointRecord(seen.step, seen.time, seen.model_sha256, seen.seconds) if seen else None


def rank_progress(
    pages: Dict[int, ProgressPage],
    unsaved: Dict[int, UnsavedCheckpoint],
    figures: Mapping[int, Figures] = MappingProxyType({}),
) -> Tuple[RankProgress, ...]:
    """Return what a heartbeat says of these pages, in the order of ranks."""
    now = time.monotonic()
    return tuple(
        RankProgress(
            rank=rank,
            step=page.step,
            phase=page.phase,
            loss=_known(page.loss),
            samples_per_second=_known(page.samples_per_second),
            step_seconds=_known(page.step_seconds),
            resumed_step=page.resumed_step if page.resumed_step >= 0 else None,
            busy_seconds=_known(page.busy_seconds),
            save_seconds=_known(page.save_seconds) or None,
            data_share=_known(page.data_share) or None,
            exchange_share=_known(page.exchange_share) or None,
            snapshot_share=_known(page.snapshot_share) or None,
            unsaved=unsaved.get(rank),
            overdue_seconds=page.overdue_seconds(now),
            attempt=page.attempt,
            start=page.start,
            total_steps=page.total_steps or None,
            figures=figures.get(rank),
            loss_is_odd=math.isinf(page.loss) or None,
            start_seconds=_known(page.start_seconds),
            earlier_steps=page.earlier_steps or None,
        )
        for rank, page in sorted(pages.items())
    )


def _known(value: float) -> Optional[float]:
    """Return a number, or None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
