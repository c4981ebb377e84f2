"""What `trainmaster run` does with good jobs."""

from __future__ import annotations

import json

from tests.local.command import Command, a_job, a_script


def test_json_lines_end_with_the_status_that_is_also_in_the_workdir(command: Command) -> None:
    """Every line is JSON; programs may rely on the last one."""
    assert command.start(a_job()).end() == 0
    assert not any("text" in line for line in command.seen)
    status = command.seen[-1]
    assert status == command.status
    assert (status["phase"], status["progress"]["step"], status["checkpoint"]["step"]) == ("Succeeded", 40, 40)
    assert status["restartCount"] == 0
    assert command.stderr == ""


def test_plain_lines_where_there_is_no_terminal(command: Command) -> None:
    """Headline, life, and how it ended."""
    command.make_gate()
    command.start(a_job(arguments={"hold_at": 21}), "--output", "text")
    command.until(lambda line: line["text"].startswith("running  step "))
    command.open_gate()
    assert command.end() == 0
    lines = command.text.splitlines()
    assert lines[0] == "small: small:Small by AllReduce on 2 workers"
    assert "rank 0 is here" in lines
    assert "rank 1 is here" not in lines
    assert "Succeeded: All 2 workers finished." in lines
    assert lines[-1] == f"  folder      {command.workdir}"
    assert "rank 1 is here" in (command.workdir / "logs" / "small-worker-1-0.log").read_text()
    assert "\x1b" not in command.text


def test_a_tracker_that_was_never_reached_is_told_at_the_end(command: Command) -> None:
    """In words for people, also where the job was shorter than the first try."""
    job = a_job(steps=3, workers=1)
    job["spec"]["training"]["trackers"] = {"openTelemetry": {"url": "http://127.0.0.1:9"}}
    assert command.start(job, "--output", "text").end() == 0
    assert "  trackers    OpenTelemetry: http://127.0.0.1:9/v1/metrics cannot be reached: " in command.text


def test_two_devices_per_worker_are_two_ranks_each_on_the_cpu(command: Command) -> None:
    """World size 4, and the group really has that many."""
    assert command.start(a_job(workers={"replicas": 2, "gpus": 2})).end() == 0
    worlds = {path.name: path.read_text().split()[1] for path in command.folder.glob("rank-*.txt")}
    assert worlds == {f"rank-{rank}-1.txt": "4" for rank in range(4)}
    manifest = json.loads((command.workdir / "checkpoints" / "step-00000040" / "manifest.json").read_text())
    assert manifest["world_size"] == 4


def test_a_script_runs_unchanged_in_the_folder_of_the_yaml(command: Command) -> None:
    """With torchrun's variables, its own arguments, and the user's env."""
    text = """
import os, sys
from pathlib import Path
import torch, torch.distributed as dist
import helper
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
Path(f"said-{os.environ['RANK']}").write_text(f"{total.item()} {helper.WORD} {os.environ['COLOUR']} {sys.argv[1:]}")
dist.destroy_process_group()
"""
    (command.folder / "helper.py").write_text("WORD = 'help'")
    workers = {"replicas": 2, "env": [{"name": "COLOUR", "value": "red"}]}
    assert command.start(a_script(text, command.folder, "--fast", workers=workers)).end() == 0
    assert (command.folder / "said-1").read_text() == "2.0 help red ['--fast']"
    assert command.status["progress"]["step"] == 0


def test_modules_beside_the_yaml_do_not_replace_those_of_the_agent(command: Command) -> None:
    """People call their files queue.py and http.py."""
    for name in ("queue", "http", "selectors", "dataclasses"):
        (command.folder / f"{name}.py").write_text("raise RuntimeError('not the library')")
    (command.folder / "jobs").mkdir()
    yaml = command.folder / "jobs" / "job.yaml"
    (command.folder / "small.py").rename(command.folder / "jobs" / "small.py")
    yaml.write_text(json.dumps(a_job(steps=10, workers=1)))
    assert command.start(yaml).end() == 0


def test_a_relative_workdir_is_meant_from_where_the_command_was_typed(command: Command) -> None:
    """Although ranks work in the folder of the YAML."""
    (command.folder / "jobs").mkdir()
    yaml = command.folder / "jobs" / "job.yaml"
    yaml.write_text(json.dumps(a_job(steps=10, workers=1)))
    assert command.start(yaml, "--workdir", "work").end() == 0
    assert (command.workdir / "checkpoints" / "step-00000010" / "manifest.json").is_file()
    assert not (command.folder / "jobs" / "work").exists()


def test_without_a_workdir_each_run_has_a_folder_of_its_own(command: Command) -> None:
    """Under .trainmaster/, and the last line says which."""
    yaml = command.folder / "job.yaml"
    yaml.write_text(json.dumps(a_job(steps=10, workers=1)))
    for _ in range(2):
        assert command.start(yaml, "--output", "text", "--workdir", "").end() == 0
    folders = sorted(path.name for path in (command.folder / ".trainmaster").iterdir())
    assert len(folders) == 2
    assert all(name.startswith("small-2") for name in folders)
    assert command.text.splitlines()[-1].endswith(folders[-1])


def test_a_suspended_job_does_not_train_and_says_so(command: Command) -> None:
    """On one machine nobody could resume it, so the command ends."""
    assert command.start(a_job(suspend=True), "--output", "text").end() == 1
    assert "spec.suspend" in command.text
    assert command.status["phase"] == "Suspended"
    assert not list(command.folder.glob("rank-*"))


def test_the_deadline_ends_a_job(command: Command) -> None:
    """With the field's name in the message."""
    job = a_script("import time; time.sleep(600)", command.folder, activeDeadlineSeconds=2)
    assert command.start(job).end() == 1
    assert command.status["reason"] == "DeadlineExceeded"
    assert "spec.activeDeadlineSeconds" in command.status["message"]
