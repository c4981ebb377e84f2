"""Simulated training of members that come and go one by one: parameter servers, or gossip.

The counterpart of `training.Group`: nobody hears of a death. Steps are made as long as a worker trains and all servers
(where the job has any) are there; each worker ends when all steps are made. A server's part of the model is lost with
it where the next server, which keeps a copy, is away too: then all are set back to the newest checkpoint. What members
say of their progress is what real ones say (tests/platforms/telling.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.states.observed import Replica
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
    done: set[str] = field(default_factory=set)  # whose ranks ended well
    _indices: dict[str, int] = field(default_factory=dict)
    _resumed: dict[str, int] = field(default_factory=dict)  # from which step each goes on; absent while it loads
    _is_lost: bool = False  # a part of the model is gone: only a checkpoint has it
    _made: float = 0.0  # steps, with fractions
    _looked: float = 0.0
    _ticks: bool = False  # somebody lives

    def check_ports(self, pod: Replica, roster: Roster, offered: tuple[int, ...]) -> None:
        """A real agent refuses to start ranks at ports that it does not listen on."""
        line = member_of(roster, pod.role, pod.index)
        self.roles[pod.uid], self._indices[pod.uid] = pod.role, pod.index
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
        self._resumed.pop(uid, None)
        for rank in ranks if uid in self.refused else ():
            error = ErrorReport("StartFailed", "not offered here")
            self._later(0.001, self._end, uid, rank, RankEnded(self.roster.attempt, rank, 0, exit_code=1, error=error))

    def progress(self, uid: str) -> tuple[RankProgress, ...]:
        """What the progress pages of these ranks say now."""
        self._advance()
        resumed, ranks = self._resumed.get(uid), self.members[uid].ranks
        if resumed is None:
            return tuple(RankProgress(rank, 0, "load") for rank in ranks)
        waits = self.roles[uid] == names.WORKER and not self._answer()
        phase = "done" if uid in self.done else "load" if waits else "train"
        return tuple(RankProgress(rank, self.step, phase, 1.0, 10.0, 0.1, resumed) for rank in ranks)

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
        before = self._servers()
        if uid in self.members:
            self.members[uid].living.clear()
        self._note_loss(before)

    def cut(self) -> None:
        """Some machine is unreachable: the others train on."""

    def _trains(self, uid: str) -> bool:
        return bool(self.members[uid].living) and _now() >= self.trains_from[uid]

    def _servers(self) -> set[int]:
        """The servers that have their part of the model."""
        return {self._indices[uid] for uid in self.members if self._trains(uid) and self.roles[uid] != names.WORKER}

    def _answer(self) -> bool:
        """Whether all servers are there, so that workers are given something to do."""
        return len(self._servers()) == self._server_count

    @property
    def _server_count(self) -> int:
        return sum(member.role == names.PARAMETER_SERVER for member in self.roster.members)

    def _advance(self) -> None:
        """Book the time since the last look, as if it had all been like now."""
        passed, self._looked = _now() - self._looked, _now()
        if not self._answer():
            return
        if self._is_lost:
            self._made, self._is_lost, self._resumed = float(self.storage.step), False, {}
        training = [uid for uid in self.members if self._trains(uid)]
        if any(self.roles[uid] == names.WORKER for uid in training):
            self._made += passed / self.plan.step_seconds
        for uid in training:
            self._resumed.setdefault(uid, min(self.plan.steps, int(self._made)))
        step = min(self.plan.steps, int(self._made))
        self.storage.save(self.roster.attempt, step - step % self.plan.every, _now())

    def _note_loss(self, before: set[int]) -> None:
        """Servers were `before` that may be no more."""
        left, count = self._servers(), self._server_count
        gone = [index for index in range(count) if index not in left and (index + 1) % count not in left]
        self._is_lost = self._is_lost or bool(gone and before - left)

    def _tick(self) -> None:
        self._advance()
        done = self._made >= self.plan.steps
        for uid in [*self.members] if done else ():
            if self.roles[uid] == names.WORKER and self._trains(uid):
                self.done.add(uid)
                for rank in self._living(uid):
                    self._end(uid, rank, RankEnded(self.roster.attempt, rank, self.plan.steps, exit_code=0))
        self._ticks = any(member.living for member in self.members.values())
        if self._ticks:
            self._later(_TICK_SECONDS, self._tick)

    def _end(self, uid: str, rank: int, how: RankEnded) -> None:
        self._advance()
        before = self._servers()
        super()._end(uid, rank, how)
        self._note_loss(before)


def _now() -> float:
    return asyncio.get_running_loop().time()
