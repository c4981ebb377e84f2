"""Ranks of a script that end early or leave: the ledger names who ended, and no attempt repeats what repeats itself."""

import dataclasses

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import ExitReport, GoodEnd

from tests.builders import JobBuilder, a_job, an_error, evicted
from tests.core.stage import Stage

ECHO = "Connection closed by peer [10.0.0.2]:1234"


def a_script() -> JobBuilder:
    return a_job().where(training={"command": ["python", "t.py"]}).with_workers(2)


def an_echo(attempt: int = 1) -> ExitReport:
    return an_error(ECHO, attempt, 0, kind="RuntimeError")


def a_stage() -> Stage:
    return Stage(a_script()).train(step=0)


def waits(stage: Stage, key: str, attempt: int) -> None:
    """Its ranks were told to end, and the agent waits."""
    stage.say(key, lambda beat: dataclasses.replace(beat, state=AgentState.WAITING, attempt=attempt))


def test_who_ended_is_named_and_the_job_ends() -> None:
    stage = a_stage().finish("worker-1").rank_dies("worker-0", an_echo())
    (line,) = stage.status.restarts
    assert (line.failure_class, line.replica, line.exit) == ("EndedEarly", "worker-1 rank 1", "exit code 0")
    assert line.evidence == (
        "rank 1 ended with exit code 0 while worker-0 rank 0 waited for it in a collective: all ranks must take the "
        f"same number of steps (RuntimeError: {ECHO} (train.py:12 in step))"
    )
    assert (stage.status.phase, stage.status.reason, stage.status.restart_count) == (Phase.FAILED, "EndedEarly", 0)
    assert "DistributedSampler" in (stage.status.message or "")


def test_one_who_leaves_its_group_and_lives_on_is_not_waited_for_ten_times() -> None:
    """Nothing but the error of the other one is told then: three restarts, and a sentence on what it may be."""
    stage = a_stage()
    for attempt in (1, 2, 3, 4):
        stage.rank_dies("worker-0", an_echo(attempt))
        waits(stage, "worker-1", attempt + 1)
        if attempt < 4:
            stage.train(step=0)
    assert (stage.status.phase, stage.status.restart_count) == (Phase.FAILED, 3)
    assert {line.failure_class for line in stage.status.restarts} == {"PeerLost"}
    assert "may have left its process group" in (stage.status.message or "")


def test_an_end_that_is_told_after_the_echo_takes_its_line() -> None:
    stage = a_stage().rank_dies("worker-0", an_echo())
    assert [line.failure_class for line in stage.status.restarts] == ["PeerLost"]
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, good_end=GoodEnd(1, 1)))
    (line,) = stage.status.restarts
    assert (line.failure_class, line.replica, stage.status.restart_count) == ("EndedEarly", "worker-1 rank 1", 1)
    assert ECHO in (line.evidence or "")


def test_one_who_waits_until_it_hangs_is_explained_too() -> None:
    stage = a_stage().finish("worker-1")
    report = ExitReport(1, 0, 0, hung=True, waiting=True, stacks="stack")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, stalled=report))
    (line,) = stage.status.restarts
    assert (line.failure_class, line.stacks) == ("EndedEarly", "stack")


def test_a_lost_replica_is_still_the_cause() -> None:
    stage = Stage(a_script().with_workers(3)).train(step=0).finish("worker-1").rank_dies("worker-0", an_echo())
    stage.change("worker-2", evicted)
    assert [line.failure_class for line in stage.status.restarts] == ["Disruption"]


@pytest.mark.parametrize("kind", ["ValueError", "MemoryError"])
def test_an_error_of_its_own_stays_that(kind: str) -> None:
    stage = a_stage().finish("worker-1").rank_dies("worker-0", an_error("no", 1, 0, kind=kind))
    assert stage.status.restarts[-1].replica == "worker-0 rank 0"
