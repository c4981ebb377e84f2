"""Spares: warm workers beside the group, of which one takes the place of a worker that is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from trainmaster.core.states.observed import Obstacle, Replica
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Heartbeat, Orders, Roster

from tests.builders import NOON, a_death, a_job, deleting, ended, evicted, pending, saying
from tests.core.stage import Stage, a_stage

ONE = {"spares": 1}


def a_group(workers: int = 2, spares: int = 1, **spec: object) -> Stage:
    """All train, all spares stand by."""
    return a_stage(workers, scheduling={"spares": spares}, **spec).train()


def orders_of(stage: Stage, key: str) -> Orders:
    return stage.orders[stage.replica(key).uid]


def roster_of(stage: Stage, key: str = "worker-0") -> Roster:
    roster = orders_of(stage, key).roster
    assert roster is not None
    return roster


def seats(stage: Stage, key: str = "worker-0") -> list[tuple[int, int]]:
    """(index, first rank) of everybody who takes part."""
    return [(one.index, one.first_rank) for one in roster_of(stage, key).members]


def test_a_spare_is_created_and_waits_and_is_no_member() -> None:
    stage = a_group()
    assert stage.created == ["digits-worker-0-0", "digits-worker-1-0", "digits-worker-2-0"]
    assert (stage.status.phase, seats(stage)) == ("Running", [(0, 0), (1, 1)])
    assert orders_of(stage, "worker-2").verb == Verb.WAIT
    assert stage.status.replicas is not None
    assert (stage.status.replicas.summary, stage.status.replicas.spares) == ("2/2", 1)


def test_a_job_does_not_wait_for_its_spares() -> None:
    stage = a_stage(2, scheduling=ONE).settle().call_in("worker-0", "worker-1").obey()
    assert stage.status.phase == "Running"
    condition = next(one for one in stage.status.conditions if one.type == "SparesReady")
    assert (condition.status, "training does not wait" in condition.message) == ("False", True)


@pytest.mark.parametrize("how", [evicted, deleting, lambda replica: ended(replica, 137, "OOMKilled")])
def test_a_spare_takes_the_place_of_a_lost_worker_at_once(how: Callable[[Replica], Replica]) -> None:
    stage = a_group().change("worker-1", how)
    assert (stage.status.phase, stage.status.attempt) == ("Starting", 2)
    assert seats(stage) == [(0, 0), (2, 1)], "the lost worker's rank, and the others keep theirs"
    assert orders_of(stage, "worker-2").verb == Verb.RUN
    assert stage.created[-1] == "digits-worker-1-1"
    assert stage.replica("worker-1").phase == "Pending", "its next pod was not waited for"
    stage.obey()
    assert (stage.status.phase, stage.status.substitutes) == ("Running", {"worker-1": 2})
    stage.call_in()
    assert orders_of(stage, "worker-1").verb == Verb.WAIT, "it stands by now"
    assert stage.status.attempt == 2


def test_the_place_at_which_the_group_meets_can_be_taken_over() -> None:
    stage = a_group().change("worker-0", evicted)
    assert seats(stage, "worker-2") == [(2, 0), (1, 1)]
    roster = roster_of(stage, "worker-2")
    assert roster.rendezvous_address == stage.replica("worker-2").address
    assert stage.obey().status.phase == "Running"


def test_the_ledger_says_who_stepped_in() -> None:
    stage = a_group().change("worker-1", evicted)
    (line,) = stage.status.restarts
    assert line.why == (
        "Restarting from step 0 or a newer one in memory. It costs no restart budget. "
        "Spare worker-2 takes the place of worker-1."
    )
    assert [event.reason for event in stage.events if event.type == "Warning"] == ["Restarting"]
    assert "takes the place" in (stage.status.message or "")


def test_places_change_hands_again_and_again() -> None:
    stage = a_group()
    for lost, substitutes in [
        ("worker-1", {"worker-1": 2}),
        ("worker-0", {"worker-0": 1, "worker-1": 2}),
        ("worker-2", {"worker-0": 1, "worker-1": 0}),
        ("worker-1", {"worker-0": 2, "worker-1": 0}),
    ]:
        stage.change(lost, evicted).obey()
        assert (stage.status.phase, stage.status.substitutes) == ("Running", substitutes)
        stage.call_in()
    assert stage.status.attempt == 5
    assert len([replica for replica in stage.replicas.values() if replica.alive]) == 3


def test_of_two_that_are_lost_the_first_gets_the_only_spare() -> None:
    stage = a_group(3)
    for key in ("worker-1", "worker-2"):
        stage.replicas[stage.replica(key).name] = evicted(stage.replica(key))
    stage.settle()
    assert (stage.status.phase, stage.status.substitutes) == ("Restarting", {"worker-1": 3})
    stage.call_in("worker-2").obey()
    assert stage.status.phase == "Running"
    assert seats(stage) == [(0, 0), (3, 1), (2, 2)]


def test_a_lost_spare_is_replaced_and_nobody_minds() -> None:
    stage = a_group()
    before = stage.status
    stage.change("worker-2", lambda replica: ended(replica, 1))
    assert stage.status.incarnations == {"worker-2": 1}
    assert (stage.status.attempt, stage.status.phase, stage.status.restarts) == (1, "Running", ())
    assert stage.status.restart_count == before.restart_count == 0
    assert stage.created[-1] == "digits-worker-2-1"
    stage.vanish("worker-2")
    assert (stage.status.attempt, stage.created[-1]) == (1, "digits-worker-2-1")


def test_a_spare_that_is_lost_at_the_same_time_does_not_step_in() -> None:
    stage = a_group()
    for key in ("worker-1", "worker-2"):
        stage.replicas[stage.replica(key).name] = evicted(stage.replica(key))
    stage.settle()
    assert (stage.status.substitutes, stage.status.restart_count) == ({}, 1)
    assert stage.call_in().obey().status.phase == "Running"


def test_a_dead_rank_needs_no_spare() -> None:
    stage = a_group().rank_dies("worker-1", a_death())
    assert stage.status.substitutes == {}
    assert seats(stage.obey()) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("obstacle", ["Unschedulable", "ErrImagePull", "VolumeMissing", "InvalidImageName"])
def test_what_keeps_a_spare_from_starting_ends_no_job(obstacle: str) -> None:
    stage = a_stage(2, scheduling=ONE).settle().call_in("worker-0", "worker-1").obey()
    stage.change("worker-2", lambda replica: pending(replica, obstacle))
    stage.wait(3600)
    assert stage.status.phase == "Running"
    condition = next(one for one in stage.status.conditions if one.type == "SparesReady")
    assert (condition.status, condition.reason) == ("False", obstacle)


def test_a_spare_that_is_refused_ends_no_job() -> None:
    stage = a_stage(2, scheduling=ONE).settle().call_in("worker-0", "worker-1").obey()
    stage.refused = (Obstacle("Forbidden", "violates PodSecurity", NOON.timestamp(), "digits-worker-2-0"),)
    assert stage.wait(3600).status.phase == "Running"


def test_a_worker_that_does_not_come_is_stood_in_for() -> None:
    stage = a_stage(2, scheduling=ONE).settle().wait(6)
    stage.call_in("worker-0", "worker-2")
    stage.wait(3)
    assert (stage.status.phase, stage.status.substitutes) == ("Pending", {})
    stage.wait(8)
    assert (stage.status.phase, stage.status.substitutes) == ("Starting", {"worker-1": 2})
    assert "SpareSteppedIn" in [event.reason for event in stage.events]
    assert stage.obey().status.phase == "Running"
    assert stage.call_in().status.attempt == 1, "who is late stands by"


def test_a_spare_that_is_there_only_after_the_loss_steps_in_before_a_pod_that_has_not_started() -> None:
    stage = a_stage(2, scheduling=ONE).settle().call_in("worker-0", "worker-1").obey().change("worker-1", evicted)
    assert (stage.status.phase, stage.status.substitutes) == ("Restarting", {})
    stage.call_in("worker-2")
    assert (stage.status.phase, stage.status.substitutes, stage.status.attempt) == ("Starting", {"worker-1": 2}, 2)


def test_a_group_that_knows_but_an_echo_keeps_those_who_may_tell_the_cause() -> None:
    stage = a_group(failurePolicy={"maxRestarts": 0})
    echo = dataclasses.replace(a_death(), signal="SIGTERM")
    stage.replicas[stage.replica("worker-1").name] = dataclasses.replace(stage.replica("worker-1"), heartbeat=None)
    stage.rank_dies("worker-0", echo).wait(60)
    assert stage.status.substitutes == {}
    stage.change("worker-1", evicted)
    assert (stage.status.phase, stage.status.substitutes) == ("Starting", {"worker-1": 2})
    assert stage.status.restarts[-1].failure_class == "Disruption"


def on_node(replica: Replica, node: str) -> Replica:
    return dataclasses.replace(replica, node=node)


def warm(beat: Heartbeat) -> Heartbeat:
    return dataclasses.replace(beat, warm=True)


def test_the_best_spare_is_on_another_node_and_warm() -> None:
    stage = a_group(spares=4)
    stage.change("worker-2", lambda replica: on_node(replica, "node-1"))  # where the lost one is
    for key in ("worker-2", "worker-4", "worker-5"):
        stage.say(key, warm)
    stage.change("worker-1", evicted)
    assert stage.status.substitutes == {"worker-1": 4}


def test_after_suspension_everybody_is_who_they_were() -> None:
    stage = a_group().change("worker-1", evicted).obey()
    stage.respec(suspend=True)
    assert stage.status.substitutes == {}
    stage.settle()
    assert not [replica for replica in stage.replicas.values() if replica.alive]
    stage.respec(suspend=False).call_in().obey()
    assert (stage.status.phase, seats(stage)) == ("Running", [(0, 0), (1, 1)])


def test_a_group_without_a_worker_grows_with_a_spare() -> None:
    stage = a_group(3, elasticity={"minReplicas": 2, "maxReplicas": 4})
    stage.change("worker-3", lambda replica: ended(replica, 1))  # the spare, whose next pod finds no place for long
    stage.change("worker-1", evicted).wait(61)
    stage.obey("worker-0", "worker-2")
    assert (stage.status.phase, stage.status.absent) == ("Running", ("worker-1",))
    stage.call_in("worker-3")
    assert (stage.status.attempt, stage.status.absent, stage.status.substitutes) == (3, (), {"worker-1": 3})
    assert stage.obey().status.phase == "Running"
    assert seats(stage) == [(0, 0), (3, 1), (2, 2)]


def test_a_spare_goes_before_a_smaller_group() -> None:
    stage = a_group(3, elasticity={"minReplicas": 2, "maxReplicas": 4}).change("worker-1", evicted)
    assert (stage.status.phase, stage.status.absent, stage.status.substitutes) == ("Starting", (), {"worker-1": 3})


def test_another_size_keeps_those_who_have_taken_over() -> None:
    stage = a_group().change("worker-1", evicted).obey().call_in()
    stage.scale(3).call_in().obey()
    assert (stage.status.phase, seats(stage)) == ("Running", [(0, 0), (2, 1), (1, 2)])
    stage.scale(1).call_in().obey()
    assert (stage.status.phase, seats(stage)) == ("Running", [(0, 0)])
    assert len([replica for replica in stage.replicas.values() if replica.alive]) == 2


def test_spares_that_are_not_wanted_any_more_disturb_nobody() -> None:
    stage = a_group().change("worker-1", evicted).obey().call_in()
    none = a_job().build().spec.scheduling
    stage.respec(scheduling=none)
    assert {name for name, replica in stage.replicas.items() if replica.alive} == {
        "digits-worker-0-0",
        "digits-worker-2-0",
    }
    assert (stage.status.attempt, stage.status.phase) == (2, "Running")


def test_the_job_ends_with_its_workers_and_spares_are_sent_home() -> None:
    stage = a_group().finish("worker-0", "worker-1")
    assert stage.status.phase == "Succeeded"
    assert orders_of(stage, "worker-2").verb == Verb.EXIT


def test_a_new_operator_gives_the_same_orders() -> None:
    stage = a_group().change("worker-1", evicted).obey()
    before = {key: (stage.replica(key).heartbeat, orders_of(stage, key)) for key in ("worker-0", "worker-2")}
    stage.operator_restarts()
    for key, (beat, _) in before.items():
        assert beat is not None
        stage.replicas[stage.replica(key).name] = saying(stage.replica(key), beat)
    stage.settle()
    assert {key: orders_of(stage, key) for key in before} == {key: given for key, (_, given) in before.items()}
    assert stage.status.attempt == 2


def test_spares_move_away_from_a_node_that_is_avoided() -> None:
    stage = a_group(3, spares=2, failurePolicy={"maxRestarts": 9})
    stage.change("worker-3", lambda replica: on_node(replica, "node-1"))
    for attempt in (1, 2, 3):
        stage.rank_dies("worker-1", a_death(attempt=attempt, step=10 * attempt)).obey(step=10 * attempt)
    assert [node.node for node in stage.status.avoided_nodes] == ["node-1"]
    assert stage.status.incarnations == {"worker-1": 1, "worker-3": 1}
    assert stage.status.substitutes == {"worker-1": 4}


def test_where_members_come_and_go_a_status_that_names_substitutes_means_nothing() -> None:
    job = a_job().where(strategy={"type": "Gossip"}).with_workers(2).at("Pending", substitutes={"worker-0": 5})
    assert Stage(job).settle().created == ["digits-worker-0-0", "digits-worker-1-0"]
