"""Laws that hold whatever happens to a job: hypothesis plays cluster, agents and user, and looks after every step."""

# ruff: noqa: D102  the rules and laws are named after what they do

import dataclasses
import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trainmaster.core.failures import classes
from trainmaster.core.states import phases
from trainmaster.core.states.actions import CreateReplica, DeleteJob, DeleteReplica, GiveOrders
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import CheckpointRecord, ExitReport

from tests.builders import a_death, an_error, deleting, ended, evicted, pending, written
from tests.core.stage import Stage, a_stage

REPORTS = st.one_of(
    st.builds(a_death, step=st.integers(0, 100)),
    st.builds(an_error, st.sampled_from(["bad batch", "connection reset by peer"]), step=st.integers(0, 100)),
    st.builds(lambda step: ExitReport(1, 0, step, exit_code=78), st.integers(0, 100)),
)
HARMS = st.sampled_from([evicted, deleting, ended, lambda r: ended(r, 0), lambda r: pending(r, "ErrImagePull")])


class Life(RuleBasedStateMachine):
    """One job on a stage. Every rule is something that the world may do at any time."""

    stage: Stage

    @initialize(workers=st.integers(1, 3), budget=st.integers(0, 2), spares=st.sampled_from([0, 0, 1, 2]))
    def begin(self, workers: int, budget: int, spares: int) -> None:
        policy, scheduling = {"maxRestarts": budget}, {"spares": spares}
        self.stage = a_stage(workers, failurePolicy=policy, scheduling=scheduling, ttlSecondsAfterFinished=500)
        self.stage.train()
        self.seen = 0

    # What may happen. `pick` chooses a replica.

    @rule(pick=st.integers(0, 5), how=HARMS)
    def harm(self, pick: int, how: object) -> None:
        if key := self._key(pick):
            self.stage.change(key, how)  # type: ignore[arg-type]

    @rule(pick=st.integers(0, 5))
    def vanish(self, pick: int) -> None:
        if key := self._key(pick):
            self.stage.vanish(key)

    @rule(pick=st.integers(0, 5), report=REPORTS)
    def die(self, pick: int, report: ExitReport) -> None:
        key = self._key(pick)
        beat = self.stage.replica(key).heartbeat if key else None
        if key and beat and beat.state == AgentState.RUNNING:
            self.stage.rank_dies(key, dataclasses.replace(report, attempt=beat.attempt))

    @rule(steps=st.integers(1, 200))
    def train(self, steps: int) -> None:
        self.stage.train(steps)

    @rule(pick=st.integers(0, 5))
    def obey(self, pick: int) -> None:
        if key := self._key(pick):
            self.stage.call_in(key).obey(key, phase="load")

    @rule(pick=st.integers(0, 5))
    def finish(self, pick: int) -> None:
        key = self._key(pick)
        beat = self.stage.replica(key).heartbeat if key else None
        if key and beat and beat.state == AgentState.RUNNING:
            self.stage.finish(key)

    @rule(pick=st.integers(0, 5), step=st.integers(0, 200))
    def save(self, pick: int, step: int) -> None:
        key = self._key(pick)
        if key and self.stage.replica(key).heartbeat:
            record = CheckpointRecord(step, 0.0, "abc")
            self.stage.say(key, lambda beat: dataclasses.replace(beat, checkpoint=record))

    @rule(seconds=st.sampled_from([0.3000007, 5, 29, 601]))
    def wait(self, seconds: float) -> None:
        self.stage.wait(seconds)

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.stage.respec(suspend=suspend)

    @rule(workers=st.integers(1, 3))
    def scale(self, workers: int) -> None:
        self.stage.scale(workers)

    @rule()
    def restart_operator(self) -> None:
        self.stage.operator_restarts()

    # What must hold.

    @invariant()
    def deciding_again_changes_nothing(self) -> None:
        """`settle` has carried everything out: what is still wanted is in force, or cannot be done at once."""
        decision = self.stage.decide()
        assert not decision.again
        assert decision.status == self.stage.status
        for action in decision.actions:
            if isinstance(action, GiveOrders):
                assert all(self.stage.orders[uid] == orders for uid, orders in action.orders)
            else:
                assert isinstance(action, (CreateReplica, DeleteJob))
                assert not isinstance(action, CreateReplica) or self._name(action) in self.stage.replicas

    @invariant()
    def every_write_is_lawful(self) -> None:
        """It reads back as it was written; numbers that count never fall; phases follow the table; the end is final."""
        for before, after in itertools.pairwise(self.stage.writes[max(0, self.seen - 1) :]):
            assert written(after) == after
            assert after.attempt >= before.attempt
            assert after.restart_count >= before.restart_count
            assert all(after.incarnations[key] >= number for key, number in before.incarnations.items())
            assert after.phase == before.phase or after.phase in dict(phases.next_phases(before.phase))
            if before.finished:
                assert (after.phase, after.attempt, after.restarts) == (before.phase, before.attempt, before.restarts)
        self.seen = len(self.stage.writes)

    @invariant()
    def the_budget_is_never_overdrawn(self) -> None:
        status, policy = self.stage.status, self.stage.job.spec.failure_policy
        counted = [line for line in status.restarts if line.failure_class not in classes.FREE]
        since = [line for line in counted if counted[-1].step - line.step < 500 and line.decision == "Restart"]
        assert len(since) <= policy.max_restarts

    @invariant()
    def a_slot_has_one_living_replica_at_most(self) -> None:
        living = [names.replica_key(r.role, r.index) for r in self.stage.replicas.values() if r.alive]
        assert len(living) == len(set(living))

    @invariant()
    def every_place_has_one_worker_and_spares_have_none(self) -> None:
        attempt = self.stage.status.attempt
        for replica in self.stage.replicas.values():
            orders = self.stage.orders.get(replica.uid)
            if orders and orders.attempt == attempt and orders.roster and replica.alive:
                members = orders.roster.members
                assert len({member.index for member in members}) == self.stage.job.spec.workers.replicas
                assert [member.first_rank for member in members] == list(range(len(members)))
                assert replica.index in {member.index for member in members}

    @invariant()
    def after_the_end_only_goodbyes(self) -> None:
        if self.stage.status.finished:
            for action in self.stage.decide().actions:
                assert isinstance(action, (GiveOrders, DeleteReplica, DeleteJob))
                if isinstance(action, GiveOrders):
                    assert {orders.verb for _, orders in action.orders} == {Verb.EXIT}

    @precondition(lambda self: not self.stage.status.finished and not self.stage.job.spec.suspend)
    @invariant()
    def all_that_are_told_to_run_are_told_the_same(self) -> None:
        living = {replica.uid for replica in self.stage.replicas.values() if replica.alive}
        told = {orders for uid, orders in self.stage.orders.items() if uid in living and orders.verb == Verb.RUN}
        assert len(told) <= 1

    def _key(self, pick: int) -> str | None:
        living = sorted(names.replica_key(r.role, r.index) for r in self.stage.replicas.values() if r.alive)
        return living[pick % len(living)] if living else None

    def _name(self, action: CreateReplica) -> str:
        return names.replica_name(self.stage.job.name, action.role, action.index, action.incarnation)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=60,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
