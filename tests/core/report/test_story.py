"""The story of a job, as `trainmaster explain` tells it."""

import dataclasses
import json
import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli import explain
from trainmaster.core.report.story import story
from trainmaster.wire.messages import CheckpointRecord

from tests.builders import a_death, an_error, evicted
from tests.core.stage import Stage, a_running_group
from tests.core.test_hostile import STATUSES


def a_hard_life() -> Stage:
    """A kill, an eviction, a hang, and an error that comes twice."""
    stage = a_running_group(workers=2, step=0).wait(60)
    record = CheckpointRecord(50, 0.0, "abc")
    stage.say("worker-0", lambda beat: dataclasses.replace(beat, checkpoint=record))
    stage.rank_dies("worker-1", a_death(step=73, rank=1)).wait(4).obey(step=51)
    stage.wait(20).change("worker-0", evicted).wait(2).call_in().obey(step=51)
    hang = a_death(attempt=3, step=60, rank=1, hung=True, stacks='Thread 1:\n  File "train.py", line 9 in step')
    stage.wait(20).rank_dies("worker-1", hang).wait(1).obey(step=51)
    for attempt in (4, 5):
        stage.wait(20).rank_dies("worker-1", an_error("bad batch 7", attempt, step=70))
        stage.wait(1).call_in().obey(step=51)
    return stage


def test_the_story_of_a_hard_life() -> None:
    told = "\n".join(story(a_hard_life().status, "digits"))
    assert told.splitlines()[:6] == [
        "digits began at 2026-03-01 12:00:00Z.",
        "2026-03-01 12:01:00Z: attempt 1 ended at step 73: worker-1 rank 1 on node-1 (SIGKILL).",
        "    Evidence: rank 1 ended with SIGKILL",
        (
            "    Class Signal: a rank was killed by another signal, and not for memory as far as the kernel tells. "
            "It counts against spec.failurePolicy.maxRestarts."
        ),
        "    Cost: 23 steps trained again; 4 s until the next step.",
        "    It was started again: Restarting from step 50 or a newer one in memory.",
    ]
    for words in (
        "attempt 2 ended at step 51: worker-0 on node-0",
        "Evidence: EvictionByEvictionAPI: digits-worker-0-0",
        "It costs no budget.",
        "worker-1 rank 1 on node-1 (hung).",
        '          File "train.py", line 9 in step',
        "Node node-1 is avoided until 2026-03-01 13:02:07Z: 3 failures of this job within 1h00m, the last one: Value",
        "The job was stopped: The same error came twice at step 70",
        "digits failed at 2026-03-01 12:02:28Z at step 51/1000 (PythonError): ValueError: bad batch 7",
        "Of 2m28s: training",
    ):
        assert words in told, told


def test_a_job_that_is_only_there() -> None:
    assert story(TrainingJobStatus())[0] == "The job has not been looked at yet."


def test_a_job_that_was_resumed_began_before_that() -> None:
    stage = a_running_group(workers=2).wait(60).respec(suspend=True).wait(3600).respec(suspend=False).train().wait(60)
    told = story(stage.status, "digits")
    assert told[0] == "digits began at 2026-03-01 12:00:00Z, and was resumed at 2026-03-01 13:01:00Z."
    assert told[-1].startswith("Of 1h01m: ")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(STATUSES)
def test_whatever_stands_in_a_status_is_told(status: object) -> None:
    assert all(isinstance(line, str) for line in story(TrainingJobStatus.read(status)))


def test_the_command_reads_folders_files_jobs_and_the_output_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, status = tmp_path, a_hard_life().status.to_dict()
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "job.json").write_text(json.dumps({"metadata": {"name": "digits"}, "spec": {}, "status": status}))
    (folder / "run.jsonl").write_text('{"event": "x"}\n' + json.dumps(status) + "\n")
    for path in (folder, folder / "job.json", folder / "run.jsonl"):
        assert explain.explain(str(path)) == 0
        told = capsys.readouterr().out
        assert told.count("Evidence:") == 5
    assert explain.explain(str(folder / "status.json")) == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", "a: [", "\x00\xff", "{" * 5000, '{"kind": "TrainingJob"}'])
def test_what_has_no_story_is_said_in_a_sentence(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x"
    file.write_text(content)
    assert explain.explain(str(file)) == 2
    assert capsys.readouterr().err.startswith(f"trainmaster: {file}: ")
    assert explain.explain(str(file) + "/nowhere") == 2


def test_a_status_in_a_folder_is_opened_by_no_link_and_waits_for_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").write_text('{"phase": "Running"}')
    makes: tuple[Callable[[Path], object], ...] = (
        os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("elsewhere"), Path.mkdir
    )  # fmt: skip
    for make in makes:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        make(folder / "status.json")
        assert explain.explain(str(folder)) == 2
        assert "; name the folder of a run, or a file with its status" in capsys.readouterr().err


HEAVY: dict[str, tuple[Callable[[], bytes], str]] = {
    "large": (lambda: b"[" + b" " * (4 << 20) + b"]", "it has more than 4 MiB"),
    "lists": (lambda: b'{"restarts":[' + b"[]," * (1 << 20) + b"1]}", "neither JSON nor YAML"),
    "numbers": (lambda: b'{"restarts":[' + b"1," * (3 << 19) + b"1]}", "neither JSON nor YAML"),
    "YAML": (lambda: b"phase: Running\nrestarts: [" + b"{}," * 80_000 + b"]", "neither JSON nor YAML"),
    "YAML that unfolds": (
        lambda: b"a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [" + b"*a," * 100 + b"]\nphase: [" + b"*b," * 100 + b"]",
        "neither JSON nor YAML",
    ),
}


@pytest.mark.parametrize("name", HEAVY)
def test_what_no_status_weighs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    content, words = HEAVY[name]
    (tmp_path / "status").write_bytes(content())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert explain.explain(str(tmp_path / "status")) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10
    assert words in capsys.readouterr().err


def test_a_status_that_is_wrong_in_every_place_is_still_told(tmp_path: Path) -> None:
    """As much of it as is read at all: what is wrong is dropped."""
    (tmp_path / "status.json").write_bytes(b'{"phase":"Running","restarts":[' + b"1," * 49_000 + b"1]}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert explain.explain(str(tmp_path)) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10
