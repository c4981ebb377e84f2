"""Known bugs of other operators, and bugs that ours has had, put back in one at a time: the simulation must see each.

A mutant is a patch of our own code, never of what is played around it. Where it re-creates somebody's bug, the bug is
named. Those of the code that sees through a watch and writes are in `tests/cluster/test_known_bugs.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from trainmaster import intake
from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase, RestartDecision
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import decide
from trainmaster.core.decide import Decision
from trainmaster.core.failures import budgets, classes, judgement, ledger
from trainmaster.core.regime import roster
from trainmaster.core.rules import (
    causes,
    deadline,
    elasticity,
    finished,
    giving_up,
    losses,
    orders,
    replicas,
    resizing,
    restarts,
    suspension,
)
from trainmaster.core.situation import places
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.core.states.observed import Replica, ReplicaPhase
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.loop import Reconciler
from trainmaster.queueing import Key, WorkQueue
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """One bug. `name` says what goes wrong, and whose it was."""

    patch: Patch

    @property
    def name(self) -> str:
        """As in test reports."""
        return self.patch.__name__


def without(patch: pytest.MonkeyPatch, rule: object) -> None:
    """Take a rule out of the decision."""
    patch.setattr(decide, "RULES", tuple(r for r in decide.RULES if r is not rule))


def instead_of(patch: pytest.MonkeyPatch, rule: object, other: Callable[[Facts], Verdict]) -> None:
    """Put another rule in its place."""
    patch.setattr(decide, "RULES", tuple(other if r is rule else r for r in decide.RULES))


def an_ended_job_runs_again_kubeflow_1186(patch: pytest.MonkeyPatch) -> None:
    without(patch, finished.finish)


def replicas_are_never_sent_home_mpi_647_kubeflow_1579(patch: pytest.MonkeyPatch) -> None:
    def only_stop(facts: Facts) -> Verdict:
        return Verdict(final=True) if facts.status.finished else NOTHING

    instead_of(patch, finished.finish, only_stop)


def a_lost_replica_joins_the_old_attempt_jobset_665(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses, "_harmless", lambda _facts, _failure: True)


def a_terminating_replica_is_taken_for_alive_jobset_1021(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "alive", property(lambda self: self.phase in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING)))


def a_terminating_replica_is_waited_for_jobset_576_kueue_9649(patch: pytest.MonkeyPatch) -> None:
    lost = losses._lost

    def patient(facts: Facts, slot: Slot) -> bool:
        return not (slot.replica and slot.replica.deleting) and lost(facts, slot)

    patch.setattr(losses, "_lost", patient)


def a_replacement_has_the_same_name_jobset_392(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "replica_name", lambda job, role, index, _: f"{job}-{role.lower()}-{index}-0")


def the_budget_is_ignored_training_operator_2045(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budgets, "budget_used", lambda _job, _before, _step: 0)


def a_budget_is_never_refilled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budgets, "_recent", lambda _job, before, _step: list(before))


def a_change_during_a_turn_is_lost_kopf_729(patch: pytest.MonkeyPatch) -> None:
    add = WorkQueue.add

    def forgetful(self: WorkQueue, key: Key) -> None:
        if key not in self._busy:
            add(self, key)

    patch.setattr(WorkQueue, "add", forgetful)


def orders_are_given_before_the_status_is_written(patch: pytest.MonkeyPatch) -> None:
    carry_out = Reconciler._carry_out

    async def hasty(self: Reconciler, job: TrainingJob, decision: Decision) -> None:
        for action in decision.actions:
            await self._platform.apply(job, action)
        await carry_out(self, job, dataclasses.replace(decision, actions=()))

    patch.setattr(Reconciler, "_carry_out", hasty)


def a_failure_is_counted_for_every_attempt_that_follows(patch: pytest.MonkeyPatch) -> None:
    def any_attempt(self: Facts, state: AgentState) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.heartbeat and slot.heartbeat.state == state)

    patch.setattr(Facts, "at_attempt", any_attempt)


def an_eviction_costs_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(classes, "FREE", frozenset())
    for name in (classes.DISRUPTION, classes.REPLICA_DELETED):
        patch.setitem(classes.BY_NAME, name, dataclasses.replace(classes.class_of(name), costs=True))


def an_echo_ends_the_job_before_its_cause_is_known(patch: pytest.MonkeyPatch) -> None:
    stopping = SimpleNamespace(RESTART=RestartDecision.RESTART, STOP=RestartDecision.STOP, WAIT=RestartDecision.STOP)
    patch.setattr(judgement, "RestartDecision", stopping)


def an_echo_is_never_explained(patch: pytest.MonkeyPatch) -> None:
    without(patch, causes.name_the_cause)


def an_echo_and_its_cause_are_two_failures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "unexplained", lambda _status: None)


def the_first_worker_s_end_changes_the_roster(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster, "began", lambda beat, attempt: beat.attempt == attempt and beat.state == "Running")


def an_agent_that_waits_is_taken_for_one_that_has_begun(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster, "began", lambda beat, attempt: beat.attempt == attempt)


def an_offer_of_any_age_is_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster, "_is_at_hand", lambda _beat, _attempt: True)


def a_cause_that_was_scaled_away_is_counted_on_its_echo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "overtaken", lambda _status, _by: {})


def it_is_forgotten_that_orders_to_run_are_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(phases, "GATHERING", phases.GATHERING | {Phase.STARTING})


def a_replica_that_vanished_is_made_again_under_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses, "_was_complete", lambda _facts: False)


def a_suspended_job_keeps_its_replicas(patch: pytest.MonkeyPatch) -> None:
    def only_write(facts: Facts) -> Verdict:
        verdict = suspension.suspend(facts)
        return dataclasses.replace(verdict, actions=())

    instead_of(patch, suspension.suspend, only_write)


def a_new_size_is_taken_for_a_loss(patch: pytest.MonkeyPatch) -> None:
    without(patch, resizing.resize)


def surplus_replicas_are_left_behind(patch: pytest.MonkeyPatch) -> None:
    def only_create(facts: Facts) -> Verdict:
        verdict = replicas.create_and_delete(facts)
        return Verdict(actions=tuple(a for a in verdict.actions if type(a).__name__ != "DeleteReplica"))

    instead_of(patch, replicas.create_and_delete, only_create)


def an_image_that_never_comes_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    without(patch, giving_up.give_up)


def a_failed_replica_blocks_the_restart_kueue_10847(patch: pytest.MonkeyPatch) -> None:
    lost = losses._lost

    def patient(facts: Facts, slot: Slot) -> bool:
        return not (slot.replica and slot.replica.phase == ReplicaPhase.FAILED) and lost(facts, slot)

    patch.setattr(losses, "_lost", patient)


def a_pod_s_name_is_another_each_time_sieve_intermediate(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(names, "replica_name", lambda job, role, index, _: f"{job}-{role.lower()}-{index}-{next(numbers)}")


def an_old_heartbeat_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intake, "_is_newer", lambda _old, _new: True)


def a_suspended_job_keeps_its_attempt(patch: pytest.MonkeyPatch) -> None:
    suspended = suspension._suspended

    def same(facts: Facts) -> TrainingJobStatus:
        return dataclasses.replace(suspended(facts), attempt=facts.status.attempt)

    patch.setattr(suspension, "_suspended", same)


def a_deadline_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    without(patch, deadline.expire)


def a_job_outlives_its_ttl(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finished, "_expiry", lambda _facts: None)


def a_job_goes_before_its_ttl(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finished, "_expiry", lambda facts: facts.status.completion_time)


def an_elastic_group_starts_with_fewer_than_allowed(patch: pytest.MonkeyPatch) -> None:
    def with_anybody(facts: Facts) -> Verdict:
        bounds = facts.job.spec.elasticity
        if bounds is None:
            return NOTHING
        spec = facts.job.spec.model_copy(update={"elasticity": bounds.model_copy(update={"min_replicas": 1})})
        return elasticity.fit(dataclasses.replace(facts, job=facts.job.model_copy(update={"spec": spec})))

    instead_of(patch, elasticity.fit, with_anybody)


def the_ledger_is_in_memory_only(patch: pytest.MonkeyPatch) -> None:
    """The budget is lost with the operator: restarts are not in what is written."""
    to_dict = TrainingJobStatus.to_dict
    patch.setattr(TrainingJobStatus, "to_dict", lambda self: {**to_dict(self), "restarts": []})


def pods_of_two_specs_train_together(patch: pytest.MonkeyPatch) -> None:
    """An edit reaches the pods that happen to be replaced, and no others."""
    slot = Facts._slot

    def of_any_spec(facts: Facts, role: str, index: int, spare: bool = False) -> Slot:
        return dataclasses.replace(slot(facts, role, index, spare), stale=False)

    patch.setattr(Facts, "_slot", of_any_spec)


def a_spare_trains_beside_the_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orders, "_stand_by", orders._orders)


def a_spare_takes_a_place_and_the_lost_worker_keeps_it(patch: pytest.MonkeyPatch) -> None:
    """Who took the place over is not written down."""
    patch.setattr(places, "written", lambda _seats: {})


def a_dead_rank_gets_another_replica_and_the_old_one_stays(patch: pytest.MonkeyPatch) -> None:
    """It is never told to run, and holds its devices until the job has ended."""

    def replacing(facts: Facts) -> Verdict:
        verdict = restarts.restart_ranks(facts)
        if verdict.status is None:
            return verdict
        incarnations = facts.replacing(facts.at_attempt(AgentState.FAILED))
        return Verdict(status=dataclasses.replace(verdict.status, incarnations=incarnations))

    instead_of(patch, restarts.restart_ranks, replacing)
    patch.setattr(replicas, "_unwanted", lambda _facts: [])


def _all() -> Iterator[Mutant]:
    for value in list(globals().values()):
        if callable(value) and getattr(value, "__module__", "") == __name__ and "patch" in _parameters(value):
            yield Mutant(value)


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_varnames[: code.co_argcount] if code and code.co_argcount == 1 else ()


MUTANTS = tuple(_all())
