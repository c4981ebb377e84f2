"""Simulated training: ranks that meet, train, save, die, and hear of each other's death.

A group is all ranks of one roster. Nothing moves until all of them have met; then steps follow from the clock alone,
so an hour of training costs nothing to simulate.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from trainmaster.core.states.observed import Replica
from trainmaster.wire.messages import ErrorReport, RankProgress, Roster
from trainmaster_trainer.agent.supervise import RankEnded, member_of

Ended = Callable[[RankEnded], None]

# How soon a survivor's collective fails when its peer's process has gone.
ECHO_SECONDS = 0.05
# How long a rank waits for the others at the start.
MEETING_SECONDS = 120.0


@dataclass
class Plan:
    """What is trained."""

    steps: int = 100
    every: int = 10
    step_seconds: float = 0.1
    load_seconds: float = 0.3
    ranks: int = 1
    led: bool = False  # only rank 0 ends by itself, and the others serve it
    farewell_seconds: float = 0.05  # from the first rank's good end to the last one's
    silence_seconds: float = 20.0  # how soon a survivor's collective fails when its peer's machine says nothing more


@dataclass
class Storage:
    """The checkpoints of a job, on a volume that all its pods see."""

    step: int = 0
    time: float = 0.0
    saves: list[tuple[int, int]] = field(default_factory=list)  # attempt, step

    def save(self, attempt: int, step: int, time: float) -> None:
        """A complete checkpoint."""
        if step > self.step:
            self.step, self.time = step, time
            self.saves.append((attempt, step))


@dataclass
class Member:
    """The ranks of one agent in a group."""

    ranks: tuple[int, ...]
    tell: Ended
    living: set[int] = field(default_factory=set)


@dataclass
class Group:
    """All ranks of one roster."""

    roster: Roster
    plan: Plan
    storage: Storage
    random: Random
    members: dict[str, Member] = field(default_factory=dict)
    began: float | None = None
    first_step: int = 0
    resumed_step: int = 0  # from which it went on; `first_step` is where it stands, once it is broken
    broken: bool = False
    stands_since: float | None = None  # its steps do not end any more

    def check_ports(self, pod: Replica, roster: Roster, offered: tuple[int, ...]) -> None:
        """A real agent starts no ranks at ports that it does not keep. Members that come and go: crew.py."""
        line = member_of(roster, pod.role, pod.index)
        assert line is not None
        assert line.ports == offered, f"{pod.name} was told to run at ports that it does not keep"

    def join(self, uid: str, ranks: tuple[int, ...], tell: Ended) -> None:
        """The ranks of one agent start. When all have met, training begins."""
        self.members[uid] = Member(ranks, tell, set(ranks))
        self._later(MEETING_SECONDS, self._give_up_meeting, uid)
        met = sum(len(member.living) for member in self.members.values())
        if met == self.roster.world_size and not self.broken:
            self._later(self.plan.load_seconds, self._begin)

    def progress(self, uid: str) -> tuple[RankProgress, ...]:
        """What the progress pages of these ranks say now."""
        member = self.members[uid]
        if self.began is None:
            return tuple(RankProgress(rank, 0, "load") for rank in member.ranks)
        told = RankProgress(0, self.step, "train", 1.0, 10.0, self.plan.step_seconds, self.resumed_step)
        told = dataclasses.replace(told, overdue_seconds=_now() - (self.stands_since or _now()))
        return tuple(dataclasses.replace(told, rank=rank) for rank in member.ranks)

    @property
    def step(self) -> int:
        """The last step that ended."""
        if self.began is None:
            return 0
        trained = 0 if self.broken else int((_now() - self.began) / self.plan.step_seconds)
        step = min(self.plan.steps, self.first_step + trained)
        self.storage.save(self.roster.attempt, step - step % self.plan.every, _now())
        return step

    def kill(self, uid: str, rank: int, how: RankEnded) -> None:
        """A rank dies; its peers hear of it."""
        step = self.step
        self._end(uid, rank, dataclasses.replace(how, attempt=self.roster.attempt, rank=rank, step=step))
        self._break(ECHO_SECONDS)

    def stop(self, uid: str) -> None:
        """The agent ends its own ranks."""
        for rank in self._living(uid):
            self._later(self.random.uniform(0.001, 0.05), self._stopped, uid, rank)
        self._break(ECHO_SECONDS)

    def vanish(self, uid: str, silent: bool) -> None:
        """All ranks of an agent are no more, and nobody reports them."""
        if self._living(uid):
            self.step  # noqa: B018  what was saved until now is saved
            self.members[uid].living.clear()
            self._break(self.plan.silence_seconds if silent else ECHO_SECONDS)

    def cut(self) -> None:
        """The machine of some of its ranks is unreachable: everybody waits, then gives up."""
        if self.began is not None:
            self._break(self.plan.silence_seconds)

    def _begin(self) -> None:
        if self.broken:
            return
        self.began, self.first_step = _now(), self.storage.step
        self.resumed_step = self.first_step
        seconds = (self.plan.steps - self.first_step) * self.plan.step_seconds
        for uid, member in self.members.items():
            for rank in {0}.intersection(member.ranks) if self.plan.led else member.ranks:
                self._later(seconds + self.random.uniform(0, self.plan.farewell_seconds), self._finish, uid, rank)

    def _finish(self, uid: str, rank: int) -> None:
        if not self.broken or self.step >= self.plan.steps:
            self._end(uid, rank, RankEnded(self.roster.attempt, rank, self.step, exit_code=0))

    def _break(self, seconds: float) -> None:
        """The survivors' collectives fail after a while: an echo of what happened."""
        if self.broken or self.step >= self.plan.steps:
            return
        if self.began is not None:
            self.first_step, self.broken, self.stands_since = self.step, True, _now()
        self.broken = True
        met = self.began is not None
        for uid, member in self.members.items():
            for rank in tuple(member.living):
                if met:  # who still waits for others to come does not notice
                    self._later(seconds + self.random.uniform(0, 0.05), self._echo, uid, rank)

    def _give_up_meeting(self, uid: str) -> None:
        if self.began is None:
            for rank in self._living(uid):
                self._echo(uid, rank)

    def _echo(self, uid: str, rank: int) -> None:
        error = ErrorReport("RuntimeError", "Connection closed by peer", "loop.py:1 in step")
        self._end(uid, rank, RankEnded(self.roster.attempt, rank, self.step, exit_code=1, error=error))

    def _stopped(self, uid: str, rank: int) -> None:
        self._end(uid, rank, RankEnded(self.roster.attempt, rank, self.step, ours=True))

    def _end(self, uid: str, rank: int, how: RankEnded) -> None:
        member = self.members[uid]
        if rank in member.living:
            member.living.discard(rank)
            member.tell(how)

    def _living(self, uid: str) -> list[int]:
        return sorted(self.members[uid].living) if uid in self.members else []

    @staticmethod
    def _later(seconds: float, what: Callable[..., None], *about: object) -> None:
        asyncio.get_running_loop().call_later(seconds, what, *about)


def _now() -> float:
    return asyncio.get_running_loop().time()
