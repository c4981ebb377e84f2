"""Simulated training of members that come and go one by one: parameter servers, or gossip.

The counterpart of `training.Group`: nobody hears of a death. Steps are made as long as a worker trains and a server
(where the job has any) holds the model; each worker ends when all steps are made.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.observed import Replica
from trainmaster.wire import names
from trainmaster.wire.messages import ErrorReport, RankProgress, Roster
from trainmaster_trainer.agent.supervise import RankEnded, member_of

from tests.platforms.training import Ended, Group, Member

_TICK_SECONDS = 0.05


@dataclass
class Crew(Group):
    """All members of one attempt, by the uid of their pods."""

    violated: Callable[[str], None] = print
    roles: dict[str, str] = field(default_factory=dict)
    trains_from: dict[str, float] = field(default_factory=dict)  # when it has loaded
    joined: list[str] = field(default_factory=list)  # each start, by slot
    refused: set[str] = field(default_factory=set)
    _made: float = 0.0  # steps, with fractions
    _looked: float = 0.0
    _ticks: bool = False  # somebody lives

    def check_ports(self, pod: Replica, roster: Roster, offered: tuple[int, ...]) -> None:
        """A real agent refuses to start ranks at ports that it does not listen on."""
        line = member_of(roster, pod.role, pod.index)
        self.roles[pod.uid] = pod.role
        self.joined.append(names.replica_key(pod.role, pod.index))
        self.refused.discard(pod.uid)
        if line is None or line.ports != offered:
            self.refused.add(pod.uid)

    def join(self, uid: str, ranks: tuple[int, ...], tell: Ended) -> None:
        """The ranks of one member start, alone."""
        if not self.members:
            self._made, self._looked = float(self.storage.step), _now()
        if not self._ticks:
            self._ticks = True
            self._later(_TICK_SECONDS, self._tick)
        self.members[uid] = Member(ranks, tell, set(ranks))
        self.trains_from[uid] = _now() + self.plan.load_seconds
        for rank in ranks if uid in self.refused else ():
            error = ErrorReport("StartFailed", "not offered here")
            self._later(0.001, self._end, uid, rank, RankEnded(self.roster.attempt, rank, 0, exit_code=1, error=error))

    def progress(self, uid: str) -> tuple[RankProgress, ...]:
        """What the progress pages of these ranks say now."""
        phase = "train" if _now() >= self.trains_from[uid] else "load"
        return tuple(RankProgress(rank, self.step, phase, 1.0, 10.0, 0.1) for rank in self.members[uid].ranks)

    @property
    def step(self) -> int:
        """The last step that ended."""
        self._advance()
        return min(self.plan.steps, int(self._made))

    def kill(self, uid: str, rank: int, how: RankEnded) -> None:
        """A rank dies; the others train on."""
        self._end(uid, rank, dataclasses.replace(how, attempt=self.roster.attempt, rank=rank, step=self.step))

    def stop(self, uid: str) -> None:
        """The agent ends its own ranks."""
        for rank in self._living(uid):
            self._later(self.random.uniform(0.001, 0.05), self._stopped, uid, rank)

    def vanish(self, uid: str, silent: bool) -> None:  # noqa: ARG002 nobody hears of it either way
        """All ranks of an agent are no more, and nobody reports them."""
        self._advance()
        if uid in self.members:
            self.members[uid].living.clear()

    def cut(self) -> None:
        """Some machine is unreachable: the others train on."""

    def _trains(self, uid: str) -> bool:
        return bool(self.members[uid].living) and _now() >= self.trains_from[uid]

    def _advance(self) -> None:
        """Book the time since the last look, as if it had all been like now."""
        passed, self._looked = _now() - self._looked, _now()
        training = {self.roles[uid] for uid in self.members if self._trains(uid)}
        needed = {member.role for member in self.roster.members}
        if needed <= training:
            self._made += passed / self.plan.step_seconds
            step = min(self.plan.steps, int(self._made))
            self.storage.save(self.roster.attempt, step - step % self.plan.every, _now())

    def _tick(self) -> None:
        self._advance()
        done = self._made >= self.plan.steps
        for uid in [*self.members] if done else ():
            if self.roles[uid] == names.WORKER and self._trains(uid):
                for rank in self._living(uid):
                    self._end(uid, rank, RankEnded(self.roster.attempt, rank, self.plan.steps, exit_code=0))
        self._ticks = any(member.living for member in self.members.values())
        if self._ticks:
            self._later(_TICK_SECONDS, self._tick)

    def _end(self, uid: str, rank: int, how: RankEnded) -> None:
        self._advance()
        super()._end(uid, rank, how)


def _now() -> float:
    return asyncio.get_running_loop().time()
