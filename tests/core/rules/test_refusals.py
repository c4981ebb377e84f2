"""What the platform refuses to make: it ends a job that cannot start, and none that trains or can do without."""

from __future__ import annotations

import pytest
from trainmaster.core.states.observed import Obstacle

from tests.builders import NOON, pending
from tests.core.members_stage import a_parameter_server_job
from tests.core.stage import a_running_group, a_stage

TEN_MINUTES = 601


def test_a_group_that_cannot_be_completed_gets_its_time_and_ends() -> None:
    stage = a_stage(2).refuse("worker-1").settle().call_in()
    assert stage.told("ReplicasReady") == ("False", "Forbidden")
    assert stage.wait(599).status.phase == "Pending"
    assert stage.wait(2).status.reason == "Forbidden"


def test_what_nobody_wishes_for_any_more_ends_no_job() -> None:
    stage = a_stage(4).refuse("worker-3").settle().call_in().wait(60)
    stage.scale(3).obey()
    assert stage.told("ReplicasReady") == ("True", "AllReplicasReady")
    assert stage.wait(TEN_MINUTES).status.phase == "Running"


@pytest.mark.parametrize("after", [60, 3600])
def test_a_job_that_is_resumed_gets_its_whole_time_anew(after: int) -> None:
    stage = a_stage(2).refuse("worker-1").settle().call_in().wait(500)
    stage.respec(suspend=True).wait(after).respec(suspend=False)
    assert stage.wait(599).status.phase == "Pending"
    assert stage.wait(2).status.phase == "Failed"


def test_a_job_that_is_resumed_when_there_is_room_trains() -> None:
    stage = a_stage(2).refuse("worker-1").settle().respec(suspend=True).wait(3600)
    stage.refuse().respec(suspend=False)
    assert stage.train().status.phase == "Running"


def test_a_group_goes_on_without_a_worker_that_is_refused() -> None:
    stage = a_stage(3, elasticity={"minReplicas": 2, "maxReplicas": 4}).train()
    stage.refuse("worker-1").vanish("worker-1").wait(61)
    stage.obey("worker-0", "worker-2")
    assert stage.status.absent == ("worker-1",)
    assert stage.wait(TEN_MINUTES).status.phase == "Running"


def test_members_train_on_while_another_is_refused() -> None:
    stage = a_parameter_server_job(workers=3).refuse("worker-1").vanish("worker-1")
    assert stage.wait(TEN_MINUTES).status.phase == "Running"
    assert stage.told("ReplicasReady") == ("False", "Forbidden")


def test_members_of_whom_the_last_worker_is_lost_wait_from_then_on() -> None:
    stage = a_parameter_server_job(workers=2).refuse("worker-0", "worker-1").vanish("worker-1")
    stage.wait(TEN_MINUTES).vanish("worker-0")
    assert not stage.wait(599).status.finished
    assert stage.wait(2).status.reason == "Forbidden"


@pytest.mark.parametrize("reason", ["ErrImagePull", "InvalidImageName"])
def test_members_train_on_while_another_cannot_start(reason: str) -> None:
    stage = a_parameter_server_job(workers=3).vanish("worker-1")
    for _ in range(4):
        stage.change("worker-1", lambda replica: pending(replica, reason)).wait(TEN_MINUTES)
    assert stage.status.phase == "Running"
    assert stage.told("ReplicasReady") == ("False", reason)


@pytest.mark.parametrize("name", ["", "digits"], ids=["a deletion", "the Service"])
def test_a_refusal_of_something_else_ends_no_job_that_trains(name: str) -> None:
    stage = a_running_group(2)
    stage.objects = frozenset()
    stage.refuse("Service")
    stage.refused = (Obstacle("Forbidden", "no right to do that", stage.now.timestamp(), name),)
    assert stage.wait(TEN_MINUTES).status.phase == "Running"


def test_a_new_operator_that_has_heard_nobody_yet_ends_no_job_that_trains() -> None:
    stage = a_parameter_server_job(workers=3).vanish("worker-1")
    stage.change("worker-1", lambda replica: pending(replica, "ErrImagePull")).wait(TEN_MINUTES)
    assert stage.operator_restarts().status.phase == "Running"


def taken(*names: str) -> tuple[Obstacle, ...]:
    """Pods of these names are there, and not the job's."""
    return tuple(Obstacle("NameTaken", "it is not this job's", NOON.timestamp(), name) for name in names)


def test_a_pod_whose_name_is_taken_gets_the_next_one_at_once() -> None:
    stage = a_stage(2)
    stage.refused = taken("digits-worker-1-0", "digits-worker-1-1")
    stage.settle()
    assert stage.status.incarnations == {"worker-1": 2}
    assert stage.created == ["digits-worker-0-0", "digits-worker-1-2"]
    assert {(event.type, event.reason) for event in stage.events} == {("Normal", "ReplicaReplaced")}
    assert stage.events[0].message.startswith("worker-1: the name is taken")
    assert stage.train().status.phase == "Running"


def test_so_does_a_spare() -> None:
    stage = a_stage(1, scheduling={"spares": 1})
    stage.refused = taken("digits-worker-1-0")
    assert stage.settle().created == ["digits-worker-0-0", "digits-worker-1-1"]


def test_a_service_of_that_name_is_told_once_it_stays_and_ends_nothing() -> None:
    stage = a_stage(2).refuse("Service")
    stage.refused = taken("digits")
    assert stage.settle().wait(59).told("ReplicasReady") == ("False", "WaitingForReplicas")
    assert stage.wait(1).told("ReplicasReady") == ("False", "NameTaken")
    assert "Delete that Service, or rename the job" in (stage.status.message or "")
    assert stage.wait(TEN_MINUTES).train().status.phase == "Running"
