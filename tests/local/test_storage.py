"""Disks that fill up, and checkpoints that are not what they should be."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster.local.workdir import Workdir, WorkdirError

from tests.local.command import PATIENCE, Command, a_job, a_script, kill


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_the_workdir_may_be_the_storage_too(command: Command, tmp_path: Path) -> None:
    """One folder with two names is no two runs."""
    job = a_job(workers=1, checkpoint={"everySteps": 10, "storage": {"path": str(tmp_path / "same")}})
    assert command.start(job, "--workdir", str(tmp_path / "same"), "--output", "text").end() == 0, command.stderr


def test_a_full_disk_is_named_and_the_job_ends(command: Command, small_disk: Path) -> None:
    """Neither status nor logs nor checkpoints fit; the message says so, and nothing hangs."""
    job = a_job(arguments={"width": 100_000}, workers=1, failurePolicy={"maxRestarts": 0})
    assert command.start(job, "--workdir", str(small_disk), "--output", "text").end() == 1
    assert "No space left on device" in command.text
    assert "Failed:" in command.text
    assert "Traceback" not in command.text + command.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_memory_without_room_for_the_folder_of_a_run(command: Command) -> None:
    """As in a container with 64 MiB of /dev/shm that something else has filled: it lies in /tmp then."""
    small = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    script = a_script("import os; print('in', os.environ['TRAINMASTER_PROGRESS_FILE'])", command.folder)
    prefix = ("unshare", "--mount", "sh", "-c", small, "sh")
    assert command.start(script, "--output", "text", prefix=prefix).end() == 0, command.stderr
    assert "\nin /tmp/trainmaster-" in command.text


def test_a_disk_that_is_full_of_something_else(command: Command, small_disk: Path) -> None:
    """Not even the status can be written; the terminal still tells it all."""
    for name in ("logs", "checkpoints"):
        (small_disk / name).mkdir()
    (small_disk / ".lock").touch()
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"x" * 4096):
                pass
        except OSError:
            pass
    text = {"command": ["python", "-c", "print('trained')"]}
    assert command.start(a_job(workers=1, training=text), "--workdir", str(small_disk), "--output", "text").end() == 0
    assert "StatusNotWritten" in command.text
    assert "trained" in command.text


def test_saves_that_fail_are_said_until_one_is_good_again(command: Command, small_disk: Path) -> None:
    """Training goes on meanwhile, and ends with the model of a run with room enough."""
    big = {"width": 20_000}
    assert command.start(a_job(arguments=big)).end() == 0
    undisturbed = command.status["checkpoint"]["sha256"]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((1 << 20) - (64 << 10)))  # what is left has room for metrics, not for a shard
    command.make_gate()
    folder = {"everySteps": 10, "storage": {"path": str(small_disk / "saved")}}
    job = a_job(arguments={**big, "hold_at": 25}, checkpoint=folder)
    command.start(job, "--workdir", str(command.folder / "full"))
    said = command.until_event("CheckpointNotSaved")["event"]["message"]
    assert " could not be written, there is no good one yet: " in said
    assert "No space left on device. Training goes on" in said
    assert "Make room" in said
    command.until_held(0, 1)
    ballast.unlink()
    command.open_gate()
    assert command.end() == 0
    status = command.seen[-1]
    (condition,) = [one for one in status["conditions"] if one["type"] == "CheckpointSaving"]
    assert (condition["status"], condition["reason"]) == ("True", "Saved")
    assert (status["restartCount"], status["checkpoint"]["sha256"]) == (0, undisturbed)


def test_checkpoints_may_lie_elsewhere_and_belong_to_one_run_at_a_time(command: Command, tmp_path: Path) -> None:
    """The result is found there; a second run that would write there too is told so."""
    kept = tmp_path / "elsewhere"
    command.make_gate()
    job = a_job(arguments={"hold_at": 15}, workers=1, checkpoint={"everySteps": 10, "storage": {"path": str(kept)}})
    command.start(job)
    command.until_step(14)
    other = Command(command.folder, None)
    assert other.start(job, "--workdir", str(tmp_path / "other")).end() == 2
    assert f"spec.checkpoint.storage.path: {kept} is in use by another run" in other.stderr
    command.open_gate()
    assert command.end() == 0
    assert (kept / "step-00000040").is_dir()
    assert not list((command.workdir / "checkpoints").iterdir())
    assert [line["result"]["step"] for line in command.seen if "result" in line] == [40]


def test_checkpoints_in_another_runs_workdir_belong_to_one_run_too(tmp_path: Path) -> None:
    """Whoever comes first."""
    kept = tmp_path / "one" / "checkpoints"
    with Workdir(tmp_path / "one"), pytest.raises(WorkdirError, match=f"storage.path: {kept} is in use by another run"):
        Workdir(tmp_path / "other", kept).__enter__()
    with Workdir(tmp_path / "other", kept), pytest.raises(WorkdirError, match=f"{kept} is in use by another run"):
        Workdir(tmp_path / "one").__enter__()
    with Workdir(tmp_path / "one", kept):
        pass


def test_a_checkpoint_of_another_model_is_refused(command: Command) -> None:
    """It is neither overwritten nor taken."""
    assert command.start(a_job(steps=10, workers=1)).end() == 0
    before = command.status["checkpoint"]["sha256"]
    assert command.start(a_job(steps=20, workers=1, arguments={"width": 16})).end() == 1
    assert command.status["reason"] == "BadConfiguration"
    assert "model" in command.status["message"]
    assert command.start(a_job(steps=10, workers=1)).end() == 0
    assert command.status["checkpoint"]["sha256"] == before


def test_a_corrupted_checkpoint_is_passed_over_for_the_one_before(command: Command) -> None:
    """And the terminal says so."""
    assert command.start(a_job(steps=20, workers=1)).end() == 0
    (shard,) = (command.workdir / "checkpoints" / "step-00000020").glob("*.safetensors")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert command.start(a_job(steps=30, workers=1), "--output", "text").end() == 0
    assert "step 20" in command.text
    assert "Resuming from step 10" in command.text
    assert command.status["checkpoint"]["step"] == 30


def test_a_corrupted_checkpoint_after_a_fault_too(command: Command) -> None:
    """The attempt that follows falls back by itself, where memory holds nothing newer."""
    command.make_gate()
    checkpoint = {"everySteps": 10, "keep": 3, "memoryEverySteps": 0}
    command.start(a_job(arguments={"hold_at": 25}, checkpoint=checkpoint))
    command.until_step(24)
    saved, end = command.workdir / "checkpoints" / "step-00000020", time.monotonic() + PATIENCE
    while not (saved / "manifest.json").exists():  # it is saved beside the steps
        assert time.monotonic() < end
        time.sleep(0.01)
    for shard in saved.glob("*.safetensors"):
        shard.write_bytes(b"")
    kill(command.rank_pid(1), signal.SIGKILL)
    command.open_gate()
    assert command.end() == 0
    log = (command.workdir / "logs" / "small-worker-0-0.log").read_text()
    assert "Resuming from step 10" in log


def test_where_all_checkpoints_are_bad_nothing_begins_anew(command: Command) -> None:
    """What is there is left as it is: whoever can mend it must find it."""
    assert command.start(a_job(steps=20, workers=1)).end() == 0
    shards = sorted((command.workdir / "checkpoints").glob("step-*/*.safetensors"))
    good = [shard.read_bytes() for shard in shards]
    for shard in shards:
        shard.write_bytes(b"")
    assert command.start(a_job(steps=30, workers=1), "--output", "text").end() == 1
    assert command.status["reason"] == "CorruptCheckpoint"
    assert "2 are bad, the newest is step-00000020 (" in command.status["message"]
    assert "take them away to begin at step 0" in command.text
    for shard, content in zip(shards, good, strict=True):
        shard.write_bytes(content)
    assert command.start(a_job(steps=30, workers=1), "--output", "text").end() == 0
    assert "Resuming from step 20" in command.text
