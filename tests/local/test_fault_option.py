"""`trainmaster run --fault`: what it may say, and that each fault comes once and is told with its cost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.local.fault_option import FaultError, parse
from trainmaster.wire import faults
from trainmaster.wire.faults import Fault
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError

from tests.local.command import TASKS, Command, a_job

JOB = TrainingJob.model_validate(a_job())
PARSED = {
    "kill:worker/1@step=5": Fault("kill", 5, "worker", 1),
    "stop:worker/0@step=40": Fault("stop", 40, "worker", 0),
    "oom:worker/1@step=1": Fault("oom", 1, "worker", 1),
    "slow:worker/1@step=1": Fault("slow", 1, "worker", 1),
    "corrupt-checkpoint@step=30": Fault("corrupt-checkpoint", 30),
}
REFUSED = {
    "kil:worker/1@step=5": "'kil' is no fault; it is one of kill, stop, oom, slow, corrupt-checkpoint",
    "": "'' is no fault",
    "kill": "write KIND:ROLE/INDEX@step=N, as in kill:worker/1@step=50",
    "kill:worker/1@5": "write KIND:ROLE/INDEX@step=N",
    "kill:worker/1@step=": "step= is no step of this job; it has 1 to 40",
    "kill:worker/1@step=0": "step=0 is no step of this job; it has 1 to 40",
    "kill:worker/1@step=41": "step=41 is no step of this job",
    "kill:worker/1@step=-3": "step=-3 is no step of this job",
    "kill:worker/1@step=2.5": "step=2.5 is no step of this job",
    "kill:worker/2@step=5": "the job has no worker/2; it has worker/0 to worker/1",
    "kill:worker/x@step=5": "the job has no worker/x",
    "kill:worker@step=5": "name a replica that the job has: worker/0 to worker/1",
    "kill@step=5": "name a replica that the job has",
    "kill:parameterServer/0@step=5": "name a replica that the job has: worker/0 to worker/1",
    "corrupt-checkpoint:worker/0@step=5": "a checkpoint belongs to all replicas; write corrupt-checkpoint@step=5",
}


@pytest.mark.parametrize("text", PARSED)
def test_what_it_may_say(text: str) -> None:
    (fault,) = parse([text], JOB)
    assert fault == PARSED[text]
    assert str(fault) == text


@pytest.mark.parametrize("text", REFUSED)
def test_what_it_may_not_say(text: str) -> None:
    with pytest.raises(FaultError) as refused:
        parse([text], JOB)
    assert f"--fault {text}: " in str(refused.value)
    assert REFUSED[text] in str(refused.value)


def test_a_fault_is_claimed_once(tmp_path: Path) -> None:
    (one, two) = parse(["kill:worker/1@step=5", "kill:worker/1@step=5"], JOB)
    for fault in (one, two):
        fault.path(tmp_path).touch()
    assert [*faults.pending(tmp_path)] == [one, two]
    assert [faults.claim(one, tmp_path), faults.claim(one, tmp_path)] == [True, False]
    assert [*faults.pending(tmp_path)] == [two]


def test_a_fault_that_cannot_be_starts_nothing(command: Command) -> None:
    assert command.start(a_job(), "--fault", "kill:worker/7@step=5").end() == 2
    assert "trainmaster run: --fault kill:worker/7@step=5: the job has no worker/7" in command.stderr
    assert not command.workdir.exists()


def test_a_script_may_take_any_number_of_steps() -> None:
    """Nobody knows how many it takes, unless spec.training.steps says so."""
    script = a_job(training={"command": ["python", "script.py"]})
    (fault,) = parse(["kill:worker/0@step=500"], TrainingJob.model_validate(script))
    assert fault.step == 500


def test_faults_come_once_and_are_told_with_their_cost(command: Command) -> None:
    """Three restarts, and one byte of a checkpoint that is not what was written."""
    wanted = [
        "kill:worker/1@step=15",
        "oom:worker/0@step=22",
        "corrupt-checkpoint@step=35",
        "kill:worker/0@step=35",
        "slow:worker/1@step=39",
    ]
    options = [part for fault in wanted for part in ("--fault", fault)]
    shutil.copy(TASKS / "stuck.py", command.folder)
    job = a_job(arguments={"seconds": 0.05})  # a checkpoint is there some steps after it was begun
    job["spec"]["training"]["task"] = "stuck:Stuck"
    assert command.start(job, *options, "--output", "text").end() == 0
    lines = command.status["restarts"]
    assert [(line["replica"], line["step"]) for line in lines] == [
        ("worker-1 rank 1", 15),
        ("worker-0 rank 0", 22),
        ("worker-0 rank 0", 35),
    ]
    assert lines[1]["class"] == "OutOfMemory"
    assert "Traceback" not in command.text, "the ledger says it all"
    assert command.status["attempt"] == 4
    assert read(command.workdir / "checkpoints", 40).manifest.step == 40
    with pytest.raises(CorruptCheckpointError):
        read(command.workdir / "checkpoints", 30)
    for fault in wanted:
        assert command.text.count(f"(--fault {fault})") == 1, "shown when it came"
    assert re.search(r"--fault     kill:worker/1@step=15: \d steps? to train again, .* s lost", command.text)
    assert "--fault     slow:worker/1@step=39: came, and is no cause of a restart" in command.text


def test_the_checkpoint_of_that_very_step_is_changed_and_one_that_is_not_there_is_not(command: Command) -> None:
    """What is said is what was done, in the run's output and at its end. The rank that changes it dies after that."""
    wanted = ["corrupt-checkpoint@step=5", "kill:worker/0@step=20", "corrupt-checkpoint@step=20"]
    options = [part for fault in wanted for part in ("--fault", fault)]
    job = a_job(checkpoint={"everySteps": 10, "keep": 9, "memoryEverySteps": 0})
    assert command.start(job, *options).end() == 0
    told = [line["event"]["message"] for line in command.seen if line.get("event", {}).get("reason") == "Fault"]
    assert told[0] == "there was no checkpoint to change after step 5 (--fault corrupt-checkpoint@step=5)."
    assert (
        "one byte of the checkpoint of step 20 was changed after step 20 (--fault corrupt-checkpoint@step=20)." in told
    )
    log = (command.workdir / "logs" / "small-worker-0-0.log").read_text()
    assert "Resuming from step 10" in log
    (costs,) = [line["faults"] for line in command.seen if "faults" in line]
    cost = {one["fault"]: one["cost"] for one in costs}
    assert cost[wanted[0]] == "changed nothing: there was no checkpoint to change"
    assert cost[wanted[1]].startswith("10 steps to train again")
    assert cost[wanted[2]] == "changed the checkpoint of step 20"


def test_equal_faults_have_a_line_each(command: Command) -> None:
    """Programs can tell them apart as people can."""
    options = ["--fault", "kill:worker/1@step=5"] * 2
    job = a_job(checkpoint={"everySteps": 10, "memoryEverySteps": 0})
    assert command.start(job, *options).end() == 0
    assert command.status["restartCount"] == 2
    (costs,) = [line["faults"] for line in command.seen if "faults" in line]
    assert [one["fault"] for one in costs] == ["kill:worker/1@step=5"] * 2
    assert all(one["cost"].startswith("5 steps to train again") for one in costs)


def test_a_checkpoint_in_an_object_store_is_not_to_be_changed() -> None:
    """Said before the run, not after it."""
    job = TrainingJob.model_validate(a_job(checkpoint={"storage": {"objectStore": {"url": "s3://bucket/folder"}}}))
    with pytest.raises(FaultError, match="this job's checkpoints are in an object store"):
        parse(["corrupt-checkpoint@step=5"], job)


def test_a_death_over_the_last_checkpoint_is_made_good(command: Command) -> None:
    """Memory has the last step, and the job has not succeeded before the disk has it too."""
    job = a_job(workers=1, checkpoint={"everySteps": 15, "memoryEverySteps": 1})
    assert command.start(job, "--output", "json", "--fault", "kill:worker/0@step=40").end() == 0
    assert (command.status["restartCount"], command.status["checkpoint"]["step"]) == (1, 40)
    assert read(command.workdir / "checkpoints", 40).manifest.attempt == 2
