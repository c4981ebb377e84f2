"""A workdir that was used before, or is being used."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from trainmaster.api.job_states import Phase
from trainmaster.api.status import Goodput, JobProgress, RestartRecord, TrainingJobStatus
from trainmaster.core.regime import beginning
from trainmaster.core.regime.choice import look
from trainmaster.core.states.observed import Observed
from trainmaster.local.local_run import begin
from trainmaster.local.workdir import Workdir, WorkdirError, new_folder

from tests import builders
from tests.local.command import Command, a_job


def steps_trained(command: Command) -> list[int]:
    """As the metrics tell."""
    lines = (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if "loss" in line]


def test_the_same_workdir_again_goes_on_to_more_steps(command: Command) -> None:
    """From the newest checkpoint, as an attempt of its own."""
    assert command.start(a_job(steps=20)).end() == 0
    assert command.start(a_job(steps=30)).end() == 0
    assert command.status["attempt"] == 2
    assert command.status["progress"]["step"] == 30
    assert steps_trained(command) == list(range(1, 31))


def test_a_job_that_is_through_is_succeeded_again_with_the_same_model(command: Command) -> None:
    """Nothing is trained anew."""
    assert command.start(a_job(steps=20)).end() == 0
    before = command.status["checkpoint"]["sha256"]
    assert command.start(a_job(steps=20)).end() == 0
    assert command.status["checkpoint"]["sha256"] == before
    assert steps_trained(command) == list(range(1, 21))


@pytest.mark.parametrize("strategy", ["AllReduce", "ParameterServer", "Gossip"])
def test_fewer_steps_than_were_trained_is_said_to_be_nothing_to_train(command: Command, strategy: str) -> None:
    """And the model, its lines and its figures stay those of the later step."""
    assert command.start(a_job(steps=20, strategy={"type": strategy})).end() == 0
    result = command.workdir / "checkpoints" / "result.json"
    assert command.start(a_job(steps=5, strategy={"type": strategy}), "--output", "text").end() == 0
    assert command.status["message"].startswith("The newest checkpoint is of step 20, beyond spec.training.steps (5)")
    assert f"Succeeded: {command.status['message']}" in command.text
    assert "5/5" not in command.text
    assert command.status["progress"]["step"] == 20
    assert steps_trained(command) == list(range(1, 21))
    assert json.loads(result.read_text())["step"] == 20


def test_a_second_run_in_a_workdir_is_refused_and_the_first_is_not_disturbed(command: Command) -> None:
    """The message says what to do."""
    command.make_gate()
    command.start(a_job(arguments={"hold_at": 15}))
    command.until_step(14)
    second = Command(command.folder, None)
    assert second.start(command.folder / "job.yaml").end() == 2
    assert "in use by another run" in (command.folder / "stderr").read_text()
    command.open_gate()
    assert command.end() == 0
    assert command.status["restartCount"] == 0


@pytest.mark.parametrize(
    ("phase", "step", "kept"),
    [("Running", 40, 50), ("Restarting", 74, 50), ("Running", 90, None), ("Failed", 74, None)],
)
def test_after_a_bad_loss_the_next_run_goes_back_as_far(
    tmp_path: Path, phase: str, step: int, kept: int | None
) -> None:
    """Unless training has passed it, or the job has ended by it: somebody has changed something then."""
    with Workdir(tmp_path) as workdir:
        progress = JobProgress(step=step)
        workdir.write_status(TrainingJobStatus(phase=Phase(phase), attempt=2, resume_before=50, progress=progress))
        status = begin(builders.a_job().build(), workdir).status
    assert (status.attempt, status.resume_before) == (3, kept)


def after(seconds: int, **more: Any) -> RestartRecord:
    """A line of the ledger, of a failure so long after noon."""
    record = RestartRecord(attempt=1, time=builders.NOON + timedelta(seconds=seconds), failure_class="OutOfStorage")
    return dataclasses.replace(record, **more)


def test_a_run_that_was_stopped_while_it_waited_costs_no_more_than_until_then(tmp_path: Path) -> None:
    """The next one does not wait either, and what earlier restarts cost stands."""
    old = after(50, step=40, steps_lost=3, seconds_lost=2.0, decision="Restart")
    trained, written = builders.NOON + timedelta(seconds=60), builders.NOON + timedelta(seconds=125)
    with Workdir(tmp_path) as workdir:
        stopped = TrainingJobStatus(
            phase=Phase.SUSPENDED, attempt=3, running_time=trained, goodput=Goodput(time=written)
        )
        lines = (old, after(120, step=70, steps_lost=20, decision="Restart"))
        workdir.write_status(dataclasses.replace(stopped, restarts=lines, restart_count=2))
        job = begin(builders.a_job().build(), workdir)
    assert [line.seconds_lost for line in job.status.restarts] == [2.0, 5.0]
    assert job.status.restarts[0] == old
    assert (job.status.restart_count, job.status.running_time) == (2, trained), "what is older is not corrected"
    assert beginning.held_until(look(job, Observed(), written)) is None


@pytest.mark.parametrize(("phase", "kept"), [(Phase.SUCCEEDED, 1), (Phase.FAILED, 0)])
def test_what_a_run_that_succeeded_had_cost_is_told_by_the_next_too(tmp_path: Path, phase: Phase, kept: int) -> None:
    """One that failed had used up its restarts: the next one has new ones."""
    line = after(50, step=40, seconds_lost=2.0, decision="Restart")
    with Workdir(tmp_path) as workdir:
        workdir.write_status(TrainingJobStatus(phase=phase, attempt=2, restarts=(line,), restart_count=1))
        status = begin(builders.a_job().build(), workdir).status
    assert (len(status.restarts), status.restart_count, status.attempt) == (kept, kept, 3)


def test_a_cause_that_a_run_did_not_hear_before_its_end_is_not_waited_for(tmp_path: Path) -> None:
    """It was killed meanwhile. Nobody is blamed."""
    symptom = after(120, failure_class="PeerLost", decision="Wait", why="Waiting to hear.")
    with Workdir(tmp_path) as workdir:
        workdir.write_status(TrainingJobStatus(phase=Phase.RESTARTING, attempt=3, restarts=(symptom,)))
        status = begin(builders.a_job().build(), workdir).status
    (line,) = status.restarts
    assert (line.decision, line.seconds_lost, status.restart_count) == ("Restart", 0.0, 1)
    assert line.why == "Its cause was not heard before the job was stopped; it costs no restart budget."


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    """Also before either has written anything."""
    folders = [new_folder("small", tmp_path / "runs") for _ in range(4)]
    assert sorted(folders) == sorted((tmp_path / "runs").iterdir())


def test_a_folder_of_runs_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Whoever can write to a folder that is shared, or to a project that is unpacked, could lead runs elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".trainmaster").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        WorkdirError, match=r"\.trainmaster: it is a link to a folder; name another folder by --workdir"
    ):
        new_folder("small", tmp_path / ".trainmaster")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_result_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    """It must not be taken for one of the next run."""
    with Workdir(tmp_path) as workdir:
        (workdir.checkpoints / "result.json").mkdir()
        with pytest.raises(
            WorkdirError, match=r"checkpoints/result\.json, of an earlier run, cannot be removed: is a d"
        ):
            begin(builders.a_job().build(), workdir)


HERE = ("lock", "metrics", "status", "result", "logs", "log", "checkpoints")


def _forge(home: Path, name: str, victims: Path) -> None:
    """Put a link to something precious under a name that a run writes to."""
    where = {
        "lock": home / ".lock",
        "metrics": home / "checkpoints" / "metrics.jsonl",
        "status": home / "status.json",
        "result": home / "checkpoints" / "result.json",
        "log": home / "logs" / "job-worker-0-0.log",
        "logs": home / "logs",
        "checkpoints": home / "checkpoints",
    }[name]
    where.parent.mkdir(parents=True, exist_ok=True)
    where.symlink_to(victims if name in ("logs", "checkpoints") else victims / "precious")


@pytest.mark.parametrize("name", HERE)
def test_a_link_in_the_folder_is_not_followed_out_of_it(tmp_path: Path, name: str) -> None:
    victims = tmp_path / "victims"
    victims.mkdir()
    (victims / "precious").write_text("precious")
    home = tmp_path / "run"
    _forge(home, name, victims)
    with pytest.raises(WorkdirError, match="is a symbolic link; remove it, or choose another folder"):
        Workdir(home).__enter__()
    assert [(path.name, path.read_text()) for path in victims.iterdir()] == [("precious", "precious")]
