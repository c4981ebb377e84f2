"""Ranks that end no step any more: named, with their stacks, and restarted. And none that is merely slow."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from trainmaster_trainer.agent.hangs import QUIET_SECONDS

from tests.local.command import TASKS, Command, a_job, kill

STEPS = 100


def a_stuck_job(task: str = "Stuck", workers: int = 2, gpus: int = 1, **arguments: Any) -> dict[str, Any]:
    job = a_job(STEPS, {"replicas": workers, "gpus": gpus}, arguments={"seconds": 0.05, **arguments})
    job["spec"]["training"]["task"] = f"stuck:{task}"
    job["spec"]["checkpoint"]["everySteps"] = 50
    return job


@pytest.fixture(autouse=True)
def _task(folder: Path) -> None:
    shutil.copy(TASKS / "stuck.py", folder)


def logs(command: Command) -> str:
    return "\n".join(path.read_text() for path in sorted((command.workdir / "logs").glob("*.log")))


@pytest.mark.parametrize(("workers", "gpus"), [(2, 1), (1, 2)])
def test_a_stopped_rank_is_named(command: Command, workers: int, gpus: int) -> None:
    """Whether its peers are in its own replica or in another one."""
    command.start(a_stuck_job(workers=workers, gpus=gpus))
    command.until_step(20)
    stopped = time.monotonic()
    os.kill(command.rank_pid(1), signal.SIGSTOP)
    told = command.until_event("Restarting")["event"]["message"]
    assert "spec.failurePolicy.hangSeconds" in told
    assert time.monotonic() - stopped < 300, "by far: gloo itself waits for half an hour"
    assert command.end() == 0
    (line,) = command.status["restarts"]
    assert line["replica"].endswith("rank 1")
    assert "is stopped (SIGSTOP)" in line["evidence"]
    assert 1 < line["secondsToDetect"] < line["secondsLost"], "a stopped rank is watched for two seconds before"
    if workers == 1:  # else the other agent may be told of the restart before it has asked its own rank
        assert 'loop.py", line' in logs(command), "the stack of its peer"
    assert "no Python stack: it is stopped (SIGSTOP)" in logs(command), "to write one, it would have to train on"


def test_an_endless_loop_is_named_and_its_victims_are_not(command: Command) -> None:
    """The rank whose stack is outside of a collective."""
    assert command.start(a_stuck_job(way="loop", at=30)).end() == 0
    (line,) = command.status["restarts"]
    assert line["replica"] == "worker-1 rank 1"
    assert "does not come to the end of its step" in line["evidence"]
    assert "in loop" in line["evidence"], "the frame"
    assert line["step"] == 29


def test_a_deadlock_ends_too(command: Command) -> None:
    """One rank waits for what no other sends; all wait, and are told as such."""
    assert command.start(a_stuck_job(way="missing", at=30)).end() == 0
    (line,) = command.status["restarts"]
    assert "waits for other ranks without end" in line["evidence"]
    assert "in missing" in logs(command)


def test_jitter_is_no_hang(command: Command) -> None:
    """Steps of 0.35 s, and every eighth takes 3.5 s."""
    job = a_stuck_job(seconds=0.35, jitter=8)
    job["spec"]["training"]["steps"] = 18
    assert command.start(job).end() == 0
    assert command.status["restartCount"] == 0


def test_a_slow_save_is_no_hang(command: Command) -> None:
    """Ranks that have done their part wait for those that have not, for longer than for a step."""
    job = a_stuck_job("SlowToSave", save_at=50, save_seconds=QUIET_SECONDS + 4)
    job["spec"]["checkpoint"]["memoryEverySteps"] = 0  # else its state is taken as part of the step
    job["spec"]["training"]["steps"] = 60
    assert command.start(job).end() == 0
    assert command.status["restartCount"] == 0


def test_a_slow_snapshot_is_no_hang(command: Command) -> None:
    """What it asks the model for belongs to it, as it does in a save."""
    job = a_stuck_job("SlowToSave", save_at=20, save_seconds=2.5)
    job["spec"]["failurePolicy"] = {"hangSeconds": 1}
    job["spec"]["training"]["steps"] = 30
    assert command.start(job).end() == 0
    assert command.status["restartCount"] == 0


def test_a_peer_that_compiles_is_waited_for(command: Command) -> None:
    """By the rank that is in the same replica, and by those in another one."""
    job = a_stuck_job(workers=2, gpus=2, way="compile", at=30)
    job["spec"]["training"]["steps"] = 40
    assert command.start(job).end() == 0
    assert command.status["restartCount"] == 0


def test_a_fixed_limit_is_kept(command: Command) -> None:
    """`hangSeconds: 1`: sooner than auto would say."""
    job = a_stuck_job(way="loop", at=30)
    job["spec"]["failurePolicy"] = {"hangSeconds": 1}
    assert command.start(job).end() == 0
    (line,) = command.status["restarts"]
    seconds = float(line["evidence"].split(" for ")[1].split()[0])
    assert seconds < QUIET_SECONDS


def test_an_endless_evaluation_is_known_by_those_before(command: Command) -> None:
    """The first one takes longer than `hangSeconds` says, and is no hang; one that never ends is named for itself."""
    job = a_stuck_job("Evaluated", way="loop", at=3, rank=0, first=1.8)
    job["spec"]["training"] |= {"steps": 50, "evaluateEverySteps": 10}
    job["spec"]["failurePolicy"] = {"hangSeconds": 2}
    assert command.start(job).end() == 0
    (line,) = command.status["restarts"]
    assert line["replica"].endswith("rank 0")
    assert "rank 0 does not come to the end of its evaluation" in line["evidence"]
    assert (line["step"], line["class"]) == (30, "Hang")


def test_a_first_evaluation_has_as_long_as_the_job_says(command: Command) -> None:
    """Nothing follows for it from steps, and it has no batches that could be looked at."""
    job = a_stuck_job("Evaluated", way="loop", at=1, rank=0, first=0.0, seconds=0.0)
    job["spec"]["training"] |= {"steps": 12, "evaluateEverySteps": 10}
    job["spec"]["failurePolicy"] = {"evaluationSeconds": 2}
    assert command.start(job).end() == 0
    (line,) = command.status["restarts"]
    assert "rank 0 does not come to the end of its evaluation" in line["evidence"]
    assert (line["step"], line["class"]) == (10, "Hang")
    assert "(limit 1.6 s; spec.failurePolicy.evaluationSeconds sets it)" in logs(command)


def test_a_first_evaluation_that_hangs_in_a_batch_is_found_as_a_step_is(command: Command) -> None:
    """Each batch is a sign of life, so that it need not be known how long evaluations take."""
    job = a_stuck_job("Tried", way="loop", at=13, seconds=0.0)  # its third, of eight after ten steps
    job["spec"]["training"] |= {"steps": 12, "evaluateEverySteps": 10}
    job["spec"]["failurePolicy"] = {"hangSeconds": 2}
    assert command.start(job).end() == 0
    (line,) = command.status["restarts"]
    assert "rank 1 does not come to the end of its evaluation" in line["evidence"]
    assert (line["replica"], line["step"], line["class"]) == ("worker-1 rank 1", 10, "Hang")


def test_agents_that_were_stopped_themselves_accuse_nobody(command: Command) -> None:
    """A laptop that sleeps, a container that is paused: all processes of the run stop, and go on later."""
    command.start(a_stuck_job())
    command.until_step(20)
    agents = {*command.agents().values()}
    everybody = [*agents, *(command.processes() - agents)]  # an agent that is stopped later would see a stopped rank
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in everybody if number == signal.SIGSTOP else reversed(everybody):
            kill(pid, number)
        time.sleep(4.0 if number == signal.SIGSTOP else 0.0)  # longer than any limit
    assert command.end() == 0
    assert command.status["restartCount"] == 0
