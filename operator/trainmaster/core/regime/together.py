"""Decide for members that train and restart together: what is lost or dies ends the attempt of all.

Most strategies are so, and all scripts under them: their ranks take each step together.
"""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from trainmaster.api.job_states import Phase
from trainmaster.api.roles import TPU
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core.failures import classes, ledger, lost_steps
from trainmaster.core.regime import beginning, roster
from trainmaster.core.situation import places, unreachable
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.regime import Regime
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import Heartbeat, Orders, RankProgress, Roster
from trainmaster.wire.strategies import OWN_REMAINDERS, STRATEGIES


@dataclass(frozen=True, eq=False)
class Together(Regime):
    """Decide for a group: see `situation.regime.Regime` for what each method decides."""

    facts: Facts

    @cached_property
    def roster(self) -> Roster | None:
        return roster.of_group(self.facts)

    def seats(self) -> tuple[int, ...]:
        return places.seated(self.facts.job.spec.workers.replicas, self.facts.status.substitutes)

    def does_without(self) -> Collection[str]:
        return self.facts.absent if self.facts.job.spec.elasticity else ()

    def group(self) -> tuple[Slot, ...]:
        return self.facts.slots

    def group_at(self, state: AgentState) -> tuple[Slot, ...]:
        return self.facts.at_attempt(state)

    def apart(self) -> tuple[Slot, ...]:
        return ()

    def written(self, status: TrainingJobStatus) -> TrainingJobStatus:
        gathers = status.phase in phases.GATHERING or status.phase == Phase.SUSPENDED
        return dataclasses.replace(status, starts={}, founders=None) if gathers else status

    def has_begun(self) -> bool:
        """Return whether all train the present attempt or have finished, and no rank loads (scripts cannot say)."""
        running = self.facts.at_attempt(AgentState.RUNNING)
        if not running or len(running) + len(self.facts.at_attempt(AgentState.FINISHED)) < len(self.facts.slots):
            return False
        return bool(self.facts.job.spec.training.command) or all(slot.past_loading for slot in running)

    def takes_steps(self) -> bool:
        return True  # the phase Running is not written before all take steps

    def all_wait(self, beats: Sequence[Heartbeat], seconds: float) -> bool:
        if self.facts.status.phase not in (Phase.STARTING, Phase.RUNNING):
            return False
        return unreachable.overdue_seconds(beats, self.facts.status.attempt) >= seconds

    def overdue_seconds(self) -> float:
        return self.facts.overdue_seconds if self.facts.status.phase == Phase.RUNNING else 0.0

    def heard(self, ranks: Sequence[RankProgress]) -> Sequence[RankProgress]:
        return ranks

    def drifted(self) -> Sequence[Slot]:
        if self.roster is None:
            return ()
        digest, running = self.roster.digest, self.facts.at_attempt(AgentState.RUNNING)
        return [slot for slot in running if slot.heartbeat and slot.heartbeat.roster_digest != digest]

    def must_finish(self, workers: Sequence[Slot]) -> Sequence[Slot]:
        return workers

    def least_to_finish(self) -> int:
        return 1

    def goodbye_seconds(self) -> float:
        return Orders.grace_seconds

    def order_to_run(self, roster: Roster, grace_seconds: float) -> Orders:
        attempt, limits = self.facts.status.attempt, self.facts.job.spec.failure_policy.hang_limits
        why = f"Attempt {attempt}: all {len(self.facts.slots)} replicas are here."
        return Orders(
            Verb.RUN,
            attempt,
            why,
            roster,
            grace_seconds=grace_seconds,
            hang_seconds=limits.step,
            evaluation_seconds=limits.evaluation,
        )

    def addressees(self, roster: Roster | None) -> Sequence[Slot]:
        return self.facts.slots

    def next_orders(self) -> datetime | None:
        return beginning.held_until(self.facts)

    def to_explain(self) -> RestartRecord | None:
        return ledger.unexplained(self.facts.status)

    def is_secondary(self, failure_class: str) -> bool:
        return failure_class in classes.SYMPTOMS

    def tells_steps_late(self) -> bool:
        return bool(self.facts.job.spec.training.command)

    def with_costs(self, status: TrainingJobStatus, phase: Phase) -> ledger.Lines:
        # A group may succeed before it is seen to train.
        goes_on = phase == Phase.SUCCEEDED or not lost_steps.awaited(self.facts, status)
        return lost_steps.resumed(self.facts, status.restarts) if goes_on else status.restarts

    def remembers(self, changed: TrainingJobStatus) -> bool:
        """Return whether memory may be newer. Of replicas that are replaced, others must have what they had."""
        facts, spec = self.facts, self.facts.job.spec
        off = spec.checkpoint.memory_every_steps == 0 or spec.workers.accelerator == TPU
        if spec.training.task is None or off or any(slot.stale for slot in facts.slots):  # these replicas are made anew
            return False
        replaced = changed.incarnations
        if replaced == facts.status.incarnations:
            return True
        traits = STRATEGIES[spec.strategy.type]
        left = [replaced.get(slot.key, 0) == slot.incarnation for slot in facts.slots]
        if traits.copied_snapshots:  # the next replica keeps copies
            return all(one or after for one, after in zip(left, [*left[1:], left[0]], strict=True))
        return traits.replicated_snapshots and spec.strategy.compression not in OWN_REMAINDERS and any(left)

    def to_move(self) -> Sequence[Slot]:
        """Return a group that gathers after a failure."""
        status = self.facts.status
        if status.phase != Phase.RESTARTING or not ledger.is_open(status) or ledger.undecided(status):
            return ()
        return (*self.facts.slots, *self.facts.spares)

    def to_move_at_once(self, slots: Sequence[Slot]) -> Sequence[Slot]:
        return ()

    def may_train(self, slot: Slot) -> bool:
        return self.facts.status.phase not in phases.GATHERING and slot.key in self.facts.taking_part

    def resized(self) -> str:
        before, now = self.facts.status.replicas, self.facts.job.spec.workers.replicas
        if before is None or before.desired == now:
            return ""
        return f"Resizing from {before.desired} to {now} workers."

    def missed_after_resize(self) -> tuple[str, ...]:
        """Return the workers that are missed now; none if those left would be too few."""
        bounds = self.facts.job.spec.elasticity
        present = [slot for slot in self.facts.slots if slot.role == names.WORKER]
        enough = len(present) >= (bounds.min_replicas if bounds else 1)
        return tuple(slot.key for slot in self.facts.left_out) if enough else ()

    def has_dismissed(self, key: str) -> bool:
        return False
