"""What the start of an attempt waits for is told to whoever watches it."""

from trainmaster.core.regime.choice import look
from trainmaster.core.report.starting import waits_for

from tests.core.stage import Stage, a_running_group, a_stage


def told(stage: Stage) -> str:
    """The half sentence of this moment."""
    facts = look(stage.job, stage.observed, stage.now)
    return waits_for(facts, facts.status.phase)


def test_a_start_tells_what_it_waits_for_until_it_trains() -> None:
    stage = a_stage(workers=5).settle()
    assert told(stage) == "no word yet from worker-0, worker-1, worker-2 ..."
    stage.call_in("worker-0", "worker-1", "worker-2").settle()
    assert told(stage) == "no word yet from worker-3, worker-4"
    stage.call_in().settle()
    assert stage.status.phase == "Starting"
    assert told(stage) == "5 of 5 replicas import modules and load model and data"
    stage.obey("worker-0", phase="load")
    assert told(stage) == "5 of 5 replicas import modules and load model and data"
    assert told(a_running_group(workers=5)) == ""


def test_a_restart_tells_it_too() -> None:
    stage = a_running_group(workers=2).vanish("worker-1").settle()
    assert told(stage) == "no word yet from worker-1"
