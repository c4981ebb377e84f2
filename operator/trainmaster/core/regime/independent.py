"""Decide for members that come and go one by one (ParameterServer, Gossip).

An attempt begins as a group (`Founding`): all replicas are there, and a loss means a new attempt, until every agent has
reported that it began. From then on (phase Running) each member lives for itself (`Independent`).
"""

import dataclasses
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cached_property

from trainmaster.api.job_states import Phase
from trainmaster.api.status import Founders, RestartRecord, TrainingJobStatus
from trainmaster.core.failures import classes, ledger
from trainmaster.core.regime import membership, returning, roster
from trainmaster.core.regime.together import Together
from trainmaster.core.situation import places
from trainmaster.core.situation.facts import began
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import Heartbeat, Orders, RankProgress, Roster

# The time that servers get to save, from SIGTERM to SIGKILL, once all workers have finished.
LAST_WORDS_SECONDS = 20.0


class Founding(Together):
    """Decide for members that will be independent as soon as all have begun the attempt."""

    @cached_property
    def roster(self) -> Roster | None:
        facts = self.facts
        return None if facts.missing else roster.of_members(facts, facts.slots, roster.meeting(facts))

    def seats(self) -> tuple[int, ...]:
        return places.seated(self.facts.job.spec.workers.replicas, {})

    def written(self, status: TrainingJobStatus) -> TrainingJobStatus:
        """Return the status with the members when they begin: their starts, and how many founded the attempt."""
        status, spec = super().written(status), self.facts.job.spec
        if status.phase != Phase.STARTING or status.starts:
            return status
        founders = Founders(workers=spec.workers.replicas, parameter_servers=spec.servers)
        # No member has begun yet, unless the status was lost meanwhile.
        attempt, told = self.facts.status.attempt, {slot.key: slot.heartbeat for slot in self.facts.slots}
        starts = {key: (beat.start or 0) if beat and began(beat, attempt) else 0 for key, beat in told.items()}
        return dataclasses.replace(status, starts=starts, founders=founders)

    def has_begun(self) -> bool:
        """Return whether every agent runs the attempt or has finished: from now on each member lives for itself."""
        return bool(self.facts.slots) and all(membership.trains(self.facts, slot) for slot in self.facts.slots)

    def takes_steps(self) -> bool:
        """Return whether a worker trains: it has been given work, which takes all servers."""
        return any(membership.is_back(self.facts, slot) for slot in self.facts.slots if slot.role == names.WORKER)

    def all_wait(self, beats: Sequence[Heartbeat], seconds: float) -> bool:
        return False  # members step for themselves: none waits for another

    def overdue_seconds(self) -> float:
        return 0.0  # one member stands still, the others do not

    def heard(self, ranks: Sequence[RankProgress]) -> Sequence[RankProgress]:
        return [rank for rank in ranks if rank.phase != "load"]  # the first worker may have just come

    def drifted(self) -> Sequence[Slot]:
        return ()  # a member reads each new roster while it trains

    def goodbye_seconds(self) -> float:
        return LAST_WORDS_SECONDS  # servers may still be writing what the workers have just finished

    def order_to_run(self, roster: Roster, grace_seconds: float) -> Orders:
        attempt, limits = self.facts.status.attempt, self.facts.job.spec.failure_policy.hang_limits
        why = f"Attempt {attempt}: members come and go one by one."
        return Orders(Verb.RUN, attempt, why, roster, hang_seconds=limits.step, evaluation_seconds=limits.evaluation)

    def to_explain(self) -> RestartRecord | None:
        return None  # the end of another member is no cause

    def is_secondary(self, failure_class: str) -> bool:
        return False

    def tells_steps_late(self) -> bool:
        return False

    def with_costs(self, status: TrainingJobStatus, phase: Phase) -> ledger.Lines:
        # Else a member was told to start again just now, and its heartbeat is from before that.
        before = self.facts.status
        unchanged = status.starts == before.starts and status.incarnations == before.incarnations
        lines = returning.closed(self.facts, status.restarts) if unchanged else status.restarts
        # The end closes what is open yet: nobody waits for a member that is away.
        return ledger.all_closed(lines, self.facts.now) if phase == Phase.SUCCEEDED else lines

    def remembers(self, changed: TrainingJobStatus) -> bool:
        return False  # members have their state from one another

    def has_dismissed(self, key: str) -> bool:
        role, _, index = key.rpartition("-")
        roles = self.facts.job.spec.roles
        return role not in roles or int(index) >= roles[role].replicas


class Independent(Founding):
    """Decide for members of which each lives for itself."""

    @cached_property
    def roster(self) -> Roster | None:
        facts = self.facts
        if membership.silent_until(facts):
            return None
        held = membership.held(facts)
        there = [slot for slot in membership.members(facts) if slot.ready and slot.key not in held]
        return roster.of_members(facts, [slot for slot in there if roster.door(facts, slot)], membership.meeting(facts))

    def does_without(self) -> Collection[str]:
        return ()  # each member that comes takes part

    def group(self) -> tuple[Slot, ...]:
        return ()

    def group_at(self, state: AgentState) -> tuple[Slot, ...]:
        return ()

    def apart(self) -> tuple[Slot, ...]:
        return self.facts.slots

    def must_finish(self, workers: Sequence[Slot]) -> Sequence[Slot]:
        """Return the members that share the work, where it is shared; a script's workers have work of their own."""
        spec = self.facts.job.spec
        if spec.elasticity is None and spec.training.task is None:
            return workers
        return [slot for slot in workers if slot.key in self.facts.status.starts]

    def least_to_finish(self) -> int:
        bounds = self.facts.job.spec.elasticity
        return bounds.min_replicas if bounds else 1

    def addressees(self, roster: Roster | None) -> Sequence[Slot]:
        """Return the members in the roster. One without an address in it has not joined, or is put off."""
        members = roster.members if roster else ()
        named = {names.replica_key(one.role, one.index) for one in members if one.address}
        return [slot for slot in self.facts.slots if slot.key in named]

    def next_orders(self) -> datetime | None:
        held = membership.held(self.facts)
        alive = [slot for slot in self.facts.slots if slot.replica and slot.replica.alive]
        ends = [membership.silent_until(self.facts), *(held.get(slot.key) for slot in alive)]
        return min((end for end in ends if end), default=None)

    def to_move(self) -> Sequence[Slot]:
        """Return the members that have ended of their node's fault and have not begun again."""
        open_lines = [line for line in self.facts.status.restarts if line.seconds_lost is None]
        blamed = [line for line in open_lines if classes.class_of(line.failure_class).blames_node]
        ended = {key for line in blamed for key in line.members or ()}
        there = [slot for slot in membership.members(self.facts) if slot.key in ended]
        return [slot for slot in there if slot.heartbeat and not membership.trains(self.facts, slot)]

    def to_move_at_once(self, slots: Sequence[Slot]) -> Sequence[Slot]:
        avoided = {node.node for node in self.facts.status.avoided_nodes if not node.lifted}
        return [slot for slot in slots if slot.replica and slot.replica.node in avoided]

    def may_train(self, slot: Slot) -> bool:
        return slot.key in self.facts.taking_part and slot.key in self.facts.status.starts

    def resized(self) -> str:
        """Return what changed of the servers, over which the model is split; workers come and go."""
        before, now = self.facts.status.founders, self.facts.job.spec.servers
        if before is None or before.parameter_servers == now:
            return ""
        return f"Resizing from {before.parameter_servers} to {now} parameter servers."

    def missed_after_resize(self) -> tuple[str, ...]:
        return self.facts.status.absent
