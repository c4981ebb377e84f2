"""Who trains with whom, and that an operator with no memory derives the same again."""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import Rendezvous

from tests.builders import a_death, a_job
from tests.core.stage import Stage, a_running_group, a_stage


def test_ranks_follow_the_workers_index_and_their_devices() -> None:
    stage = Stage(a_job().with_workers(3, gpus=2)).settle().call_in()
    roster = stage.orders[stage.replica("worker-0").uid].roster
    assert roster
    assert [member.first_rank for member in roster.members] == [0, 2, 4]
    assert roster.world_size == 6


def test_after_an_operator_restart_nobody_is_told_to_end_what_runs() -> None:
    stage = a_running_group(workers=2).operator_restarts()
    assert stage.status.phase == Phase.RUNNING
    assert {(orders.verb, orders.attempt) for orders in stage.orders.values()} == {(Verb.WAIT, 1)}


def test_the_same_roster_is_derived_again_from_what_the_agents_say() -> None:
    stage = a_running_group(workers=2)
    said = {name: replica.heartbeat for name, replica in stage.replicas.items()}
    before = dict(stage.orders)
    stage.operator_restarts()
    for name, beat in said.items():
        stage.replicas[name] = dataclasses.replace(stage.replicas[name], heartbeat=beat)
        stage.settle()
    assert stage.orders == before
    assert (stage.status.attempt, stage.status.phase) == (1, Phase.RUNNING)


def test_also_where_some_had_not_heard_the_order_yet() -> None:
    stage = a_stage(workers=3).settle().call_in().obey("worker-1")
    before = dict(stage.orders)
    said = {name: replica.heartbeat for name, replica in stage.replicas.items()}
    stage.operator_restarts()
    for name, beat in said.items():
        stage.replicas[name] = dataclasses.replace(stage.replicas[name], heartbeat=beat)
    assert stage.settle().orders == before
    assert stage.obey().status.attempt == 1


def test_a_failure_that_was_told_to_the_old_operator_only_is_told_again() -> None:
    stage = a_running_group(workers=2)
    stage.replicas = {
        name: dataclasses.replace(
            replica, heartbeat=dataclasses.replace(replica.heartbeat, state=AgentState.FAILED, exit=a_death())
        )
        for name, replica in stage.replicas.items()
        if replica.heartbeat
    }
    stage.settle()
    said = {name: replica.heartbeat for name, replica in stage.replicas.items()}
    stage.operator_restarts()
    stage.replicas = {name: dataclasses.replace(r, heartbeat=said[name]) for name, r in stage.replicas.items()}
    stage.settle()
    assert (stage.status.attempt, stage.status.restart_count) == (2, 1)


def test_an_agent_with_another_roster_of_this_attempt_makes_a_new_attempt() -> None:
    stage = a_running_group(workers=2)
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, roster_digest="another"))
    assert (stage.status.phase, stage.status.attempt) == (Phase.STARTING, 2)
    assert stage.status.restarts[-1].failure_class == "RosterChanged"
    assert "costs no restart budget" in stage.status.restarts[-1].why


def test_an_offer_that_changes_before_anybody_has_begun_changes_the_orders() -> None:
    stage = a_stage(workers=2).settle().call_in()
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, offer=Rendezvous(50000, "new")))
    rosters = {orders.roster.rendezvous.port for orders in stage.orders.values() if orders.roster}
    assert rosters == {50000}
    assert stage.obey().status.attempt == 1


def test_the_reason_of_a_wait_does_not_change_with_each_agent_that_calls_in() -> None:
    stage = a_stage(workers=4).settle().call_in("worker-0")
    waiting = stage.orders[stage.replica("worker-0").uid]
    stage.call_in("worker-1").call_in("worker-2")
    assert stage.orders[stage.replica("worker-0").uid].version == waiting.version
