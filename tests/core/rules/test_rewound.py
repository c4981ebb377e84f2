"""A status that was lowered or wiped by hand: it is wound on to what agents and pods know, and the job goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.situation.ahead import AT_ONCE
from trainmaster.core.states.observed import ReplicaPhase

from tests.builders import TASK, a_death, a_replica, evicted
from tests.core.members_stage import a_parameter_server_job
from tests.core.situation.test_forged import edited
from tests.core.stage import Stage, a_running_group


def third_attempt() -> Stage:
    """Two workers train attempt 3; one pod was replaced, and what was left of the first is gone."""
    stage = a_running_group(workers=2, step=100).rank_dies("worker-1", a_death(1)).obey(step=101)
    stage.change("worker-1", evicted).call_in().obey(step=102)
    assert (stage.status.attempt, stage.status.incarnations) == (3, {"worker-1": 1})
    stage.replicas.pop("digits-worker-1-0", None)
    stage.events.clear()
    return stage


def wiped(stage: Stage) -> Stage:
    stage.job = stage.job.model_copy(update={"status": TrainingJobStatus()})
    return stage.settle()


def test_an_attempt_that_was_lowered_is_that_of_the_agents_again() -> None:
    stage = third_attempt()
    orders = dict(stage.orders)
    edited(stage, attempt=1)
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == ("Running", 3, 2)
    assert stage.orders == orders, "nobody is disturbed"
    (event,) = stage.events
    assert (event.type, event.reason) == ("Warning", "StatusRestored")
    assert "it said attempt 1 where agents report 3. Going on from what there is." in event.message
    assert stage.finish().status.phase == "Succeeded"


def test_incarnations_that_were_lowered_are_those_of_the_pods_again() -> None:
    stage = edited(third_attempt(), incarnations={})
    assert stage.status.incarnations == {"worker-1": 1}
    assert set(stage.replicas) == {"digits-worker-0-0", "digits-worker-1-1"}, "none is made beside it"
    assert [event.reason for event in stage.events] == ["StatusRestored"]
    assert "it said worker-1-0 where there is worker-1-1." in (stage.status.message or "")
    assert (stage.status.phase, stage.status.attempt) == ("Running", 3)


def test_a_status_that_was_wiped_is_found_again_as_far_as_it_is_known() -> None:
    stage = third_attempt()
    orders = dict(stage.orders)
    wiped(stage)
    assert (stage.status.phase, stage.status.attempt, stage.status.incarnations) == ("Running", 3, {"worker-1": 1})
    assert stage.orders == orders, "nobody is disturbed"
    assert set(stage.replicas) == {"digits-worker-0-0", "digits-worker-1-1"}
    assert stage.rank_dies("worker-0", a_death(3)).status.attempt == 4


def test_a_worker_that_is_not_wanted_any_more_is_sent_home_however_new() -> None:
    stage = third_attempt()
    left = dataclasses.replace(a_replica(5, incarnation=3), phase=ReplicaPhase.PENDING)
    stage.replicas[left.name] = left
    assert left.name not in wiped(stage).replicas


def test_members_are_found_again_at_their_starts() -> None:
    stage = a_parameter_server_job(workers=3, training=TASK)
    for _ in range(2):
        stage.dies("worker-1").follow(step=2)
    stage.dies("worker-2").follow(step=2)
    starts = dict(stage.status.starts)
    wiped(stage)
    assert (stage.status.phase, stage.status.attempt, stage.status.starts) == ("Running", 1, starts)
    stage.dies("worker-2")
    assert stage.status.starts["worker-2"] == 2


def test_an_operator_that_hears_nobody_yet_believes_the_status() -> None:
    stage = third_attempt()
    stage.operator_restarts()
    assert stage.status.attempt == 3
    assert not stage.events


@pytest.mark.parametrize(("age", "told", "believed"), [(0, AT_ONCE, AT_ONCE), (0, 2**53, 1), (500, AT_ONCE + 501, 1)])
def test_no_agent_raises_it_beyond_what_a_job_of_that_age_can_have_had(age: int, told: int, believed: int) -> None:
    stage = a_running_group(workers=2)
    metadata = stage.job.metadata.model_copy(update={"creation_timestamp": stage.now.isoformat()})
    stage.job = stage.job.model_copy(update={"metadata": metadata})
    stage.wait(age)
    forged: Any = dataclasses.replace
    stage.say("worker-1", lambda beat: forged(beat, attempt=told))
    assert stage.status.attempt == believed
    assert stage.status.phase == "Running"
