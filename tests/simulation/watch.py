"""What must never be, whatever fails: looked after at every change of the simulated world."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core.failures import budgets, classes
from trainmaster.core.situation.objects import KINDS
from trainmaster.core.states import phases
from trainmaster.core.states.observed import Replica
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Orders, Roster

from tests.platforms.nodes import Nodes
from tests.platforms.server import ApiServer, Change, Pod
from tests.simulation import lasting

# What is older than this is known to all who look: a pod that was made, a member that joined.
LONG_SECONDS = 5.0
UNWRITTEN = TrainingJobStatus()


class _Errors(logging.Handler):
    """An error in the log is a violation: nothing in the simulation should ever need one."""

    def __init__(self, note: Watch) -> None:
        super().__init__(logging.ERROR)
        self._watch = note

    def emit(self, record: logging.LogRecord) -> None:
        self._watch.violated(f"an error was logged: {self.format(record)}")


@dataclass
class Watch:
    """Looks on. `violations` is empty, or the simulation has found a bug."""

    server: ApiServer
    violations: list[str] = field(default_factory=list)
    two_until: float = 0.0  # by the loop's clock: until then a second operator acts on what it saw seconds ago
    all_are_heard: bool = True  # no node is lost and no watch cut: who trains is named to the others
    jobs: dict[Key, TrainingJob] = field(default_factory=dict)  # as each was when it was last there
    _erased: dict[str, dict[str, int]] = field(default_factory=dict)  # incarnations, from statuses that users edited
    ends: set[str] = field(default_factory=set)  # uids of jobs that users deleted
    writes: int = 0
    history: list[str] = field(default_factory=list)
    _statuses: dict[str, TrainingJobStatus] = field(default_factory=dict)
    _rosters: dict[tuple[str, int], str] = field(default_factory=dict)  # by the job's uid and the attempt
    _running: dict[str, int] = field(default_factory=dict)  # by the job's uid
    _members: dict[str, dict[str, float]] = field(default_factory=dict)  # job -> slot -> since when it takes part
    _pods: dict[str, str] = field(default_factory=dict)
    _started: dict[str, datetime] = field(default_factory=dict)
    _told: dict[tuple[str, str, int, int, int], str] = field(default_factory=dict)
    _ranks: dict[tuple[str, int, int], str] = field(default_factory=dict)  # whose ranks they are, of an attempt

    def violated(self, law: str) -> None:
        """Something happened that must not."""
        self.violations.append(law)

    @contextlib.contextmanager
    def listening_to(self, log: logging.Logger) -> Iterator[None]:
        """Errors that are logged meanwhile are violations; warnings are expected here."""
        handler, level = _Errors(self), log.level
        log.addHandler(handler)
        log.setLevel(logging.ERROR)
        before, log.propagate = log.propagate, False
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = before

    def see(self, change: Change) -> None:
        """Every change of the server."""
        if change.name[0] == "job" and change.value is None:
            self._check_gone(self.jobs[Key(*change.name[1].split("/"))])
            self._forget(change.name[1])
        elif isinstance(change.value, TrainingJob):
            self.jobs[Key(change.value.namespace, change.value.name)] = change.value
            self._see_job(change.name[1], change.value)
        elif isinstance(change.value, Pod):
            self._see_pod(change.value)

    # Jobs.

    def _forget(self, key: str) -> None:
        """The job was deleted. Another one of its name begins anew."""
        self._statuses.pop(key, None)
        self._members.pop(key, None)
        self._erased.pop(key, None)
        self._started.pop(key, None)
        for place in [place for place in self._told if place[0] == key]:
            del self._told[place]
        for ranks in [ranks for ranks in self._ranks if ranks[0] == key]:
            del self._ranks[ranks]

    def _see_job(self, key: str, job: TrainingJob) -> None:
        before, after = self._statuses.get(key, UNWRITTEN), job.status
        self._statuses[key] = after
        now = asyncio.get_running_loop().time()
        known = self._members.get(key, {})
        self._members[key] = {slot: known.get(slot, now) for slot in after.starts}
        if before == after:
            return
        self.writes += 1
        self.history.append(f"{key}: {after.phase} {after.attempt} {after.message}")
        if after.attempt < before.attempt:
            self.violated(f"the attempt fell from {before.attempt} to {after.attempt}")
        if after.restart_count < before.restart_count:
            self.violated("the count of restarts fell")
        if any(after.incarnations.get(slot, 0) < number for slot, number in before.incarnations.items()):
            self.violated("an incarnation fell")
        if after.phase != before.phase and after.phase not in dict(phases.next_phases(before.phase)):
            self.violated(f"{before.phase} was followed by {after.phase}")
        stopped = before.phase in (Phase.STARTING, Phase.RUNNING) and after.phase in phases.GATHERING
        if stopped and after.attempt == before.attempt:
            self.violated(f"attempt {after.attempt} was {before.phase} and is {after.phase}")
        if before.finished and (before.phase, before.attempt, before.restarts) != (
            after.phase,
            after.attempt,
            after.restarts,
        ):
            self.violated("an ended job was changed")
        if after.finished and not before.finished:
            self._check_the_end(job)
        self._check_budget(job)
        self._check_goodput(key, after)
        self._check_size(job)

    def _check_the_end(self, job: TrainingJob) -> None:
        """Nobody has held a place's resources twice: what comes later ends them all. And it did not come too early."""
        for wrong in lasting.twins(self.server, LONG_SECONDS):
            self.violated(f"{wrong} when the job ended")
        limit, began = job.spec.active_deadline_seconds or 0, job.status.start_time
        if job.status.reason == "DeadlineExceeded" and not (began and self.server.now() >= began.timestamp() + limit):
            self.violated(f"its deadline of {limit} s came early: it had begun at {began}")

    def _check_size(self, job: TrainingJob) -> None:
        """An elastic group is never smaller than its user allows, and no other is smaller than it was asked for."""
        size = job.spec.workers.replicas - len(job.status.absent)
        least = job.spec.elasticity.min_replicas if job.spec.elasticity else job.spec.workers.replicas
        if job.status.phase == Phase.STARTING and size < min(least, job.spec.workers.replicas):
            self.violated(f"it starts with {size} workers")

    def _check_gone(self, job: TrainingJob) -> None:
        """A job that nobody deleted has had its time after its end."""
        ttl, ended = job.spec.ttl_seconds_after_finished, job.status.completion_time
        may_go = ttl is not None and ended is not None and self.server.now() >= ended.timestamp() + ttl
        if job.uid not in self.ends and not may_go:
            self.violated(f"{job.name} was deleted: {job.status.phase}, {ended}")

    def _check_goodput(self, key: str, status: TrainingJobStatus) -> None:
        """Where the time went adds up to the time, to one part in a hundred."""
        if status.start_time:
            self._started.setdefault(key, status.start_time)
        if status.goodput and status.goodput.time:
            wall = (status.goodput.time - self._started[key]).total_seconds()
            if abs(status.goodput.total - wall) > max(0.01 * wall, 0.05):
                self.violated(f"{status.goodput} does not add up to {wall} s")

    def _check_budget(self, job: TrainingJob) -> None:
        """A restart that costs finds budget left, and a job that ends for want of budget has used it up."""
        budget, lines = job.spec.failure_policy.max_restarts, job.status.restarts
        horizon = budgets.REFILL_INTERVALS * job.spec.checkpoint.every_steps
        for number, line in enumerate(lines):
            used = sum(1 for other in lines[:number] if _costs(other) and line.step - other.step < horizon)
            if _costs(line) and line.decision == "Restart" and used >= budget:
                self.violated(f"a restart at step {line.step} after {used}, with a budget of {budget}")
            if line is lines[-1] and job.status.reason == budgets.EXHAUSTED and used < budget:
                self.violated(f"it ended at step {line.step} after {used} restarts, with a budget of {budget}")
        tries = [line.attempt for line in job.status.restarts]
        if not job.spec.independent and len(tries) != len(set(tries)):
            self.violated(f"one attempt has two lines in the ledger: {tries}")

    def edited(self, key: Key, status: TrainingJobStatus) -> None:
        """A user is about to write this status: no law holds for it, but for what follows."""
        self._erased[str(key)] = self._statuses.get(str(key), status).incarnations
        self._statuses[str(key)] = status

    def _written(self, key: str, status: TrainingJobStatus, slot: str) -> int:
        """The incarnation of the slot; what a user erased had been written, and may have been acted on since."""
        return max(status.incarnations.get(slot, 0), self._erased.get(key, {}).get(slot, 0))

    # Pods.

    def _see_pod(self, pod: Pod) -> None:
        replica = pod.replica
        if replica.uid in self._pods:
            return
        self._pods[replica.uid] = replica.name
        status = self._statuses.get(str(pod.owner), UNWRITTEN)
        slot = names.replica_key(replica.role, replica.index)
        # Who has not seen the end may make a pod that the spec still asks for; who has seen it deletes that one again.
        if status.finished and asyncio.get_running_loop().time() > self.two_until:
            self.violated(f"{replica.name} was made after the end")
        if replica.incarnation > self._written(str(pod.owner), status, slot):
            self.violated(f"{replica.name} was made before it was written down")
        first = {kind for kind in self.server.kinds if KINDS[kind].before_replicas}
        if any((kind, pod.owner) not in self.server.objects for kind in first):
            self.violated(f"{replica.name} was made before what must be there first")
        for other in self._twins(pod):
            if other.replica.incarnation == replica.incarnation:
                self.violated(f"{replica.name} and {other.replica.name} are one incarnation")

    def _twins(self, pod: Pod) -> list[Pod]:
        """Living pods of the same slot. A cache that lags may make one, but must not keep it."""
        slot = pod.owner, pod.replica.role, pod.replica.index
        others = [o for o in self.server.pods.values() if (o.owner, o.replica.role, o.replica.index) == slot]
        return [other for other in others if other.replica.alive and other.replica.uid != pod.replica.uid]

    # Agents.

    def heard(self, pod: Pod, orders: Orders) -> None:
        """An agent has heard these orders."""
        job = self.server.jobs.get(pod.owner)
        if job is None or job.uid != pod.owner_uid:
            return  # of a job that is no more; it ends soon
        key = str(pod.owner)
        status = self._statuses.get(key, UNWRITTEN)
        if orders.verb == Verb.RUN:
            self._check_specs(key, orders.roster)
            independent = orders.roster is not None and orders.roster.independent
            incarnation = pod.replica.incarnation if independent else 0  # a group's attempt has one pod a slot
            place = key, pod.replica.role, pod.replica.index, orders.attempt, incarnation
            if independent and orders.roster:
                self._check_members(key, orders.roster, status)
            elif orders.roster:
                self._check_ranks(key, pod.replica, orders.roster)
            if self._told.setdefault(place, pod.replica.uid) != pod.replica.uid:
                self.violated(f"two pods were told to be {place}")
            # While a group gathers, nobody has been told to run the present attempt.
            if (orders.attempt, True) > (status.attempt, status.phase not in phases.GATHERING):
                self.violated(f"attempt {orders.attempt} was ordered before it was written down ({status.phase})")
            if orders.roster and not any(
                (member.role, member.index, member.incarnation)
                == (pod.replica.role, pod.replica.index, pod.replica.incarnation)
                for member in orders.roster.members
            ):
                self.violated(f"{pod.replica.name} was told to run without being in the roster")
        if orders.verb == Verb.EXIT and not status.finished:
            self.violated(f"{pod.replica.name} was sent home from a job that is {status.phase}")

    def _check_specs(self, key: str, roster: Roster | None) -> None:
        """Pods of one role that train together are made of one spec, whatever was edited since."""
        named = {(one.role, one.index, one.incarnation) for one in (roster.members if roster else ()) if one.address}
        pods = (pod.replica for pod in self.server.pods.values() if str(pod.owner) == key)
        there = {(pod.role, pod.revision) for pod in pods if (pod.role, pod.index, pod.incarnation) in named}
        if len(there) > len({role for role, _ in there}):
            self.violated(f"pods of two specs train together: {sorted(there)}")

    def _check_ranks(self, key: str, replica: Replica, roster: Roster) -> None:
        """Whatever number a worker has, the ranks of an attempt are those of one pod."""
        for member in roster.members:
            if (member.role, member.index) == (replica.role, replica.index):
                whose = self._ranks.setdefault((key, roster.attempt, member.first_rank), replica.uid)
                if whose != replica.uid:
                    self.violated(f"{replica.name} was told to be rank {member.first_rank} beside another pod")
        places = [member.first_rank for member in roster.members]
        if len(set(places)) != len(places):
            self.violated(f"a rank of attempt {roster.attempt} was given twice: {places}")

    def _check_members(self, key: str, roster: Roster, status: TrainingJobStatus) -> None:
        """Who takes part, and each lonely start, is written before anybody is told."""
        for member in roster.members:
            slot = names.replica_key(member.role, member.index)
            told = (roster.attempt, member.incarnation, member.start or 0)
            if told > (status.attempt, self._written(key, status, slot), status.starts.get(slot, 2**53)):
                self.violated(f"{slot} was named as {told} before it was written down")
        named = {names.replica_key(member.role, member.index) for member in roster.members if member.address}
        now = asyncio.get_running_loop().time()
        same = self.all_are_heard and roster.attempt == status.attempt
        for slot, since in self._members.get(key, {}).items() if same else ():
            if slot not in named and now - since > LONG_SECONDS and self._lives(key, slot, status):
                self.violated(f"{slot} trains, and the others were told that it has gone")

    def _lives(self, key: str, slot: str, status: TrainingJobStatus) -> bool:
        pods = [pod.replica for pod in self.server.pods.values() if pod.replica.alive and str(pod.owner) == key]
        own = status.incarnations.get(slot, 0)
        return any((names.replica_key(pod.role, pod.index), pod.incarnation) == (slot, own) for pod in pods)

    def new_crew(self, uid: str, roster: Roster) -> None:
        """The first members of an attempt start."""
        before = self._rosters.setdefault((uid, roster.attempt), roster.rendezvous.key)
        if before != roster.rendezvous.key:
            self.violated(f"attempt {roster.attempt} was begun with two keys")

    def ordered(self, uid: str, orders: Orders) -> None:
        """The operator gives these orders."""
        if orders.verb == Verb.RUN:
            if orders.attempt < self._running.get(uid, 0):
                self.violated(f"attempt {orders.attempt} was ordered after {self._running[uid]}")
            self._running[uid] = max(orders.attempt, self._running.get(uid, 0))

    def new_group(self, uid: str, roster: Roster) -> None:
        """The first ranks of a roster start."""
        before = self._rosters.setdefault((uid, roster.attempt), roster.digest)
        if before != roster.digest:
            self.violated(f"attempt {roster.attempt} was begun with two rosters")

    # The end.

    def the_end(self, nodes: Nodes) -> None:
        """All jobs have ended a while ago."""
        for pod in self.server.pods.values():
            if pod.replica.alive and pod.replica.node not in nodes.lost:
                self.violated(f"{pod.replica.name} was left behind: {pod.replica.phase}")
        for agent in nodes.agents.values():
            if not agent.silent:
                self.violated(f"the agent of {agent.pod.name} was left behind")


def _costs(line: RestartRecord) -> bool:
    return classes.class_of(line.failure_class).costs
