"""A clock that is put back, by a day here, stops nothing: no time that is written or told is waited for twice."""

import dataclasses
from datetime import datetime, timedelta

import pytest
from trainmaster.core.situation import clocks
from trainmaster.core.states.observed import Obstacle
from trainmaster.wire.agent_states import Verb

from tests.builders import a_death, a_job, ended, evicted, pending, saying
from tests.core.members_stage import a_parameter_server_job
from tests.core.stage import Stage, a_running_group, a_stage

DAY = timedelta(days=1)


def put_back(stage: Stage) -> Stage:
    """The clock was a day ahead, and is right again."""
    stage.now -= DAY
    stage.settle()
    return stage


def ahead(stage: Stage) -> Stage:
    """The clock is a day ahead from now on."""
    stage.now += DAY
    stage.settle()
    return stage


def test_a_replica_that_ends_is_replaced() -> None:
    stage = put_back(a_running_group(workers=2))
    for number in range(2):
        stage.change("worker-1", lambda replica: ended(replica, 137)).wait(40).call_in()
        assert stage.created[-1] == f"digits-worker-1-{number + 1}"


def test_a_group_goes_on_with_fewer_in_time() -> None:
    stage = ahead(a_running_group(workers=3, elasticity={"minReplicas": 2, "maxReplicas": 3}))
    put_back(stage.change("worker-2", evicted)).wait(59)
    assert not stage.status.absent
    assert stage.wait(1).status.absent == ("worker-2",)


def test_a_spare_steps_in_in_time() -> None:
    stage = ahead(a_stage(workers=2, scheduling={"spares": 1}))
    stage.call_in("worker-0", "worker-2")
    put_back(stage).wait(10)
    assert stage.status.substitutes == {"worker-1": 2}


def test_progress_is_told() -> None:
    stage = ahead(a_running_group(workers=1, step=100))
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, ranks=(dataclasses.replace(beat.ranks[0], step=110),)))
    put_back(stage.wait(20))
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, ranks=(dataclasses.replace(beat.ranks[0], step=900),)))
    stage.wait(10)
    assert stage.status.progress
    assert (stage.status.progress.step, stage.status.progress.time) == (900, stage.now)


def test_the_deadline_the_goodbye_and_the_end_of_an_ended_job_come() -> None:
    stage = ahead(
        a_running_group(workers=1, activeDeadlineSeconds=60, ttlSecondsAfterFinished=100).respec(suspend=True)
    )
    put_back(stage.respec(suspend=False)).train().wait(59)
    assert stage.status.phase == "Running"
    assert stage.wait(1).status.reason == "DeadlineExceeded"
    stage.now -= DAY
    assert not stage.settle().wait(30).replicas
    assert not stage.job_deleted
    assert stage.wait(70).job_deleted


def test_a_node_is_not_avoided_for_longer() -> None:
    until = (ahead_of_noon := Stage(a_job())).now + DAY + timedelta(hours=1)
    node = {"node": "node-1", "reason": "", "until": until.isoformat()}
    stage = Stage(a_job().at("Pending", avoidedNodes=[node])).settle().wait(3599)
    assert stage.status.avoided_nodes
    assert stage.wait(1).status.avoided_nodes == ()
    assert ahead_of_noon.now == stage.now - timedelta(hours=1)


def test_no_room_elsewhere_is_noticed() -> None:
    until = Stage(a_job()).now + timedelta(hours=1)
    node = {"node": "node-1", "reason": "", "until": until.isoformat()}
    stage = put_back(Stage(a_job().at("Pending", avoidedNodes=[node])).settle())
    words = Obstacle("Unschedulable", "didn't match node affinity", (stage.now + DAY).timestamp())
    stage.change("worker-0", lambda replica: dataclasses.replace(pending(replica), obstacle=words))
    assert stage.wait(60).status.avoided_nodes[0].lifted


def test_an_obstacle_is_told_and_one_that_platforms_date_ahead_has_its_time() -> None:
    stage = a_stage(workers=1, failurePolicy={"startSeconds": 300}).settle().wait(1000)
    stage.change("worker-0", lambda replica: pending(replica, "MountsNotReady", since=stage.now.timestamp() + 2))
    stage.change("worker-0", lambda replica: pending(replica, "ErrImagePull", since=stage.now.timestamp() + 2))
    assert stage.told("ReplicasReady") == ("False", "ErrImagePull")
    assert stage.wait(301).status.phase == "Pending"
    assert stage.wait(1).status.reason == "ErrImagePull"


def test_members_are_not_waited_for() -> None:
    stage = a_parameter_server_job(workers=3)
    words = {name: replica.heartbeat for name, replica in stage.replicas.items()}
    stage.operator_restarts()
    stage.replicas = {
        name: dataclasses.replace(replica, heartbeat=None if "worker-2" in name else words[name])
        for name, replica in stage.replicas.items()
    }
    put_back(stage)
    assert [one.index for one in stage.roster().members if one.address] == [0, 1, 0]


def test_it_is_written_once_and_then_nothing_is_to_come() -> None:
    stage = ahead(a_running_group(workers=2)).wait(10)
    stage.rank_dies("worker-1", a_death()).obey()
    stage.now -= DAY
    before = len(stage.writes)
    stage.settle()
    assert len(stage.writes) == before + 1
    assert clocks.until(stage.status, stage.now) == stage.status


def test_a_clock_that_goes_a_little_before_ours_switches_no_pause_off() -> None:
    stage = a_running_group(workers=1)
    for _ in range(15):
        replica = stage.replica("worker-0")
        stage.replicas[replica.name] = dataclasses.replace(replica, created=stage.now.timestamp() + 5)
        if replica.alive:
            stage.change("worker-0", lambda replica: ended(replica, 1, "Evicted"))
        stage.wait(1)
    assert len(stage.created) < 6


@pytest.mark.parametrize("ahead_by", [0, 0.0007])
def test_the_first_look_of_an_operator_is_one_at_which_it_waits_to_hear_of_members(ahead_by: float) -> None:
    stage = a_parameter_server_job(workers=3)
    words = stage.replica("worker-0").heartbeat
    stage.operator_restarts()
    stage.began += ahead_by  # decisions see whole milliseconds
    assert words
    stage.change("worker-0", lambda replica: saying(replica, words))
    assert stage.orders_of("worker-0").verb == Verb.WAIT


@pytest.mark.parametrize(("hour", "known"), [(11, True), (12, True), (13, False)])
def test_what_is_to_come_is_not_known(hour: int, known: bool) -> None:
    noon = datetime(2026, 3, 1, 12)  # noqa: DTZ001  any two times of one kind
    assert (clocks.past(noon.replace(hour=hour), noon) is not None) == known
    assert clocks.past(None, noon) is None
