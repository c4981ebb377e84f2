"""What dies, and that training goes on from where it was, with the same model at its end."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.local.command import PATIENCE, TASKS, Command, a_job, kill

HELD = {"hold_at": 25}
AGAIN = {**HELD, "hold_again": 5, "draws": True}
EVERY_STEP = {"everySteps": 10, "keep": 3, "memoryEverySteps": 1}
"""However long a snapshot takes on a busy machine."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, warm_parent: Path) -> str:
    """The SHA-256 of the model after 40 steps that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "small.py").write_text((TASKS / "small.py").read_text())
    command = Command(folder, warm_parent)
    assert command.start(a_job(arguments={"draws": True})).end() == 0
    return str(command.status["checkpoint"]["sha256"])


@pytest.fixture
def held(command: Command) -> Command:
    """A run of which both ranks wait before step 25, and some steps after a restart."""
    command.make_gate()
    command.start(a_job(arguments=AGAIN, checkpoint=EVERY_STEP))
    command.until_step(24)
    command.until_held(0, 1)
    return command


def test_a_killed_rank_costs_an_attempt_and_no_agent(held: Command, undisturbed: str) -> None:
    """From the last step, which memory has, under the same agents, to the same model."""
    agents = held.agents()
    kill(held.rank_pid(1), signal.SIGKILL)
    restart = held.until_event("Restarting")["event"]["message"]
    held.until_event("Running")
    assert held.agents() == agents
    held.open_gate()
    assert held.end() == 0
    status = held.status
    assert "worker-1 rank 1" in restart
    assert "Restarting from step" in restart
    assert (status["attempt"], status["restartCount"], status["checkpoint"]["sha256"]) == (2, 1, undisturbed)
    (line,) = status["restarts"]
    assert (line["exit"], line["step"], line["decision"]) == ("SIGKILL", 24, "Restart")
    assert "secondsLost" in line
    metrics = [json.loads(line) for line in (held.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "loss" in line] == list(range(1, 41))
    assert next(line["step"] for line in metrics if line["attempt"] == 2) == 25, "no completed step was lost"


def test_a_killed_agent_is_replaced_by_a_new_incarnation(held: Command, undisturbed: str) -> None:
    """Its rank ends with it; the other agent stays."""
    agents = held.agents()
    kill(agents[1], signal.SIGKILL)
    held.until_event("Restarting")
    held.until_event("Running")
    after = held.agents()
    assert after[0] == agents[0]
    assert after[1] != agents[1]
    end = time.monotonic() + PATIENCE
    while {path.name for path in held.scratch.glob("small-*")} != {"small-worker-0-0", "small-worker-1-1"}:
        assert time.monotonic() < end, "the snapshots of the dead take no memory"
        time.sleep(0.01)  # they are deleted beside what the command does
    held.open_gate()
    assert held.end() == 0
    assert held.status["incarnations"] == {"worker-1": 1}
    assert held.status["checkpoint"]["sha256"] == undisturbed
    assert (held.workdir / "logs" / "small-worker-1-1.log").is_file()


def test_a_killed_warm_parent_is_replaced(own_command: Command) -> None:
    """All ranks die with it, and their agents find another way."""
    own_command.make_gate()
    own_command.start(a_job(arguments=HELD, workers=1))
    own_command.until_step(24)
    kill(own_command.warm_parent(), signal.SIGKILL)
    own_command.open_gate()
    assert own_command.end() == 0
    assert own_command.status["restartCount"] == 1


def test_the_budget_of_restarts_is_honoured(command: Command) -> None:
    """With the field's name in the last message."""
    command.make_gate()
    command.start(a_job(arguments={"hold_at": 5}, failurePolicy={"maxRestarts": 1}), "--output", "json")
    command.until_step(4)
    kill(command.rank_pid(0), signal.SIGKILL)
    command.until_event("Running")
    command.until_step(4)
    kill(command.rank_pid(0, attempt=2), signal.SIGKILL)
    assert command.end() == 1
    assert command.status["reason"] == "RestartsExhausted"
    assert "spec.failurePolicy.maxRestarts" in command.status["message"]
    assert [line["decision"] for line in command.status["restarts"]] == ["Restart", "Stop"]


def test_the_same_error_twice_at_one_step_stops_the_job_and_is_shown_once(command: Command) -> None:
    """Four ranks raise it, in two attempts: one traceback, of the user's code only."""
    from_the_start = {"everySteps": 10, "memoryEverySteps": 0}  # the task counts the steps of its process
    job = a_job(workers={"replicas": 2, "gpus": 2}, arguments={"raise_at": 5}, checkpoint=from_the_start)
    assert command.start(job, "--output", "text").end() == 1
    assert command.text.count("LookupError: no word for step 5\n") == 1
    assert command.text.count("Traceback (most recent call last):") == 1
    assert "in stumble" in command.text
    assert "came twice at step 4" in command.text
    assert "Go on" not in command.stderr
