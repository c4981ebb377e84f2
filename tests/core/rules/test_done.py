"""A worker that is through with its work may lose its pod: nothing is trained again, and the success is kept."""

from trainmaster.core.states.observed import ReplicaPhase

from tests.builders import a_death, evicted, saying
from tests.core.stage import a_running_group


def test_a_worker_that_is_through_may_go() -> None:
    stage = a_running_group().wait(20).finish("worker-1")
    stage.change("worker-1", evicted)
    assert stage.status.done == ("worker-1",)
    stage.vanish("worker-1").wait(60)
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == ("Running", 1, 0)
    assert stage.created == ["digits-worker-0-0", "digits-worker-1-0"], "nobody needs another one"
    stage.finish("worker-0")
    assert (stage.status.phase, stage.status.restart_count) == ("Succeeded", 0)
    assert not stage.status.done


def test_it_is_remembered_without_its_last_words() -> None:
    """A forced deletion leaves nothing behind; what was written with the last progress holds."""
    stage = a_running_group().wait(20).finish("worker-1").wait(20)
    assert stage.status.done == ("worker-1",)
    trains = stage.replica("worker-0").heartbeat
    assert trains
    stage.operator_restarts().vanish("worker-1").wait(60)
    stage.change("worker-0", lambda replica: saying(replica, trains)).finish("worker-0")
    assert (stage.status.phase, stage.status.attempt, stage.status.restart_count) == ("Succeeded", 1, 0)


def test_when_another_one_dies_all_train_again() -> None:
    stage = a_running_group().wait(20).finish("worker-1").change("worker-1", evicted)
    stage.rank_dies("worker-0", a_death(rank=0)).wait(5)
    assert (stage.status.attempt, stage.status.restart_count) == (2, 1)
    assert not stage.status.done
    assert stage.created[-1] == "digits-worker-1-1"
    assert stage.replica("worker-1").phase == ReplicaPhase.PENDING
    stage.call_in().obey().finish()
    assert stage.status.phase == "Succeeded"


def test_when_another_one_is_lost_with_it_that_one_is_to_blame() -> None:
    stage = a_running_group().wait(20).finish("worker-1")
    for replica in list(stage.replicas.values()):
        stage.replicas[replica.name] = evicted(replica)
    stage.settle()
    assert [line.replica for line in stage.status.restarts] == ["worker-0"]
    assert stage.created[-2:] == ["digits-worker-0-1", "digits-worker-1-1"]
    stage.call_in().obey().finish()
    assert stage.status.phase == "Succeeded"


def test_all_who_end_together_cost_no_write_more() -> None:
    stage = a_running_group().wait(20)
    before = len(stage.writes)
    assert len(stage.finish().writes) == before + 1
