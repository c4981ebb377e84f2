"""Objects that a job has beside its replicas: made and deleted by a table, of which a row is all that a kind needs."""

import pytest
from trainmaster.core.situation import objects
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.objects import JobObjectKind
from trainmaster.core.states.actions import CreateReplica, EnsureObject
from trainmaster.core.states.observed import Obstacle

from tests.core.stage import Stage, a_stage


def has_many_workers(facts: Facts) -> bool:
    return facts.job.spec.workers.replicas > 2


@pytest.fixture(autouse=True)
def pod_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's pod group: for large jobs, and before their pods."""
    monkeypatch.setitem(objects.KINDS, "PodGroup", JobObjectKind(wanted=has_many_workers, before_replicas=True))


def on_a_platform_with_pod_groups(workers: int) -> Stage:
    stage = a_stage(workers)
    stage.kinds |= {"PodGroup"}
    return stage


def test_no_replica_is_made_before_the_objects_that_must_be_there() -> None:
    stage = on_a_platform_with_pod_groups(3)
    assert stage.decide().actions == (EnsureObject("Service"), EnsureObject("PodGroup"))
    stage.refuse("PodGroup")
    assert not stage.settle().created
    stage.refusing = frozenset()
    assert len(stage.settle().created) == 3
    assert stage.objects == {"Service", "PodGroup"}


def test_only_what_is_wanted_and_what_the_platform_makes_is_made() -> None:
    assert on_a_platform_with_pod_groups(2).settle().objects == {"Service"}
    stage = a_stage(3).settle()
    assert stage.objects == {"Service"}
    assert len(stage.created) == 3


def test_an_object_that_is_not_wanted_any_more_is_deleted() -> None:
    stage = on_a_platform_with_pod_groups(3).settle()
    stage.scale(2)
    assert stage.objects == {"Service"}


def test_an_object_that_vanished_is_made_again_only_when_a_replica_is_due() -> None:
    stage = on_a_platform_with_pod_groups(3).settle()
    stage.objects -= {"PodGroup"}
    assert EnsureObject("PodGroup") not in stage.decide().actions
    stage.refuse("PodGroup").vanish("worker-1")
    made = [action for action in stage.decide().actions if isinstance(action, EnsureObject | CreateReplica)]
    assert made == [EnsureObject("PodGroup")]
    assert len(stage.refuse().settle().created) == 4


def test_a_refused_object_is_told_as_what_keeps_the_job_from_starting() -> None:
    stage = on_a_platform_with_pod_groups(3)
    stage.refuse("PodGroup")
    stage.refused = (Obstacle("Forbidden", "no right to make pod groups", stage.now.timestamp(), ""),)
    assert stage.settle().told("ReplicasReady") == ("False", "Forbidden")
