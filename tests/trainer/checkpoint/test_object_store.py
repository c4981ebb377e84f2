"""Checkpoints in a real S3 server, and its faults: slow, cut, full, corrupt, killed in mid-save, a late attempt."""

import errno
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import torch
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import lineage as lineages
from trainmaster_trainer.checkpoint.layout import MANIFEST
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint
from trainmaster_trainer.checkpoint.remote import Remote, open_remote
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.state import Shapes, State
from trainmaster_trainer.errors import ConfigurationError, SupersededError
from trainmaster_trainer.settings import Settings

from tests.trainer.finding import find_remote
from tests.trainer.ranks import PATIENCE, STATELESS, Job, NewJob, Options, alone
from tests.trainer.s3 import BUCKET, KEYS, Proxy, server

URL = f"s3://{BUCKET}/job"
SHAPES: Shapes = {"model/w": ("float32", (50_000,))}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A running server, and the folder that it serves."""
    folder = tmp_path_factory.mktemp("s3")
    with server(folder) as port:
        yield port, folder


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def there(port: int, prefix: str) -> Options:
    return {"checkpoint_url": f"s3://{BUCKET}/{prefix}", "checkpoint_endpoint": f"http://127.0.0.1:{port}"}


def in_store(job: Job, port: int, prefix: str) -> Job:
    return replace(job.but(**there(port, prefix)), variables=dict(KEYS))


def make_settings(tmp_path: Path, port: int, prefix: str, attempt: int = 1, name: str = "here") -> Settings:
    plan = TrainingPlan("OneDevice", steps=100, global_batch_size=4, checkpoint_keep=2, **there(port, prefix))
    return Settings(plan, tmp_path / name, job_uid="uid", attempt=attempt)


def appear(path: Path) -> None:
    """Return when it is there: a folder has no bell, so it is looked at."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.001)


def begun(settings: Settings) -> Saver:
    saver = Saver(settings, alone())
    saver.prepare()
    return saver


def put(saver: Saver, step: int) -> None:
    saver.save(step, State({"model/w": torch.full((50_000,), float(step))}, STATELESS), before_commit=lambda: None)
    saver.wait(needed=False)


def newest(settings: Settings, lineage: Lineage | None = None) -> LoadedCheckpoint | None:
    remote = open_remote(settings)
    assert remote is not None
    return find_remote(remote, settings, SHAPES, lineage or Lineage())


def newest_step(settings: Settings) -> int | None:
    loaded = newest(settings)
    return loaded.manifest.step if loaded else None


def test_a_job_goes_on_from_there_with_no_file_of_its_own(new_job: NewJob, store: tuple[int, Path]) -> None:
    port, folder = store
    undisturbed = new_job("undisturbed").run(2)
    job = in_store(new_job("job", checkpoint_keep=2), port, "goes-on").but(steps=4).run(2)
    for path in job.checkpoints().rglob("*"):
        if path.is_file():
            path.unlink()
    job = job.but(steps=6).run(2, attempt=2)
    assert job.losses() == undisturbed.losses()
    assert job.manifest(6)["model_sha256"] == undisturbed.manifest(6)["model_sha256"]
    kept = sorted(path.name for path in (folder / BUCKET / "goes-on").glob("step-*"))
    assert kept == ["step-00000004.attempt-1-restart-0", "step-00000006.attempt-2-restart-0"]
    assert not list(job.checkpoints().glob(".*"))


def test_a_replaced_first_pod_goes_on_from_memory_with_the_lines_of_the_store(
    new_job: NewJob, store: tuple[int, Path]
) -> None:
    """Its own folder was in the pod. Lines of between the checkpoint and the loss may be empty, but none is missing."""
    port, folder = store
    plan = {"steps": 100, "arguments": {"seconds": 0.02}, "checkpoint_every": 10, "memory_every": 1}
    plan["checkpoint_keep"] = 10  # none is pruned before it is seen
    undisturbed = new_job("undisturbed", **plan).run(2)
    job = replace(in_store(new_job("job", **plan), port, "replaced"), memory=True)
    running = job.start(2)
    appear(folder / BUCKET / "replaced" / "step-00000020.attempt-1-restart-0" / "manifest.json")
    running.reach(25)
    running.kill()
    shutil.rmtree(job.folder / "memory-0")
    shutil.rmtree(job.checkpoints())
    job.run(2, attempt=2)
    lines = [line for line in job.lines() if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 101))
    assert [line["loss"] for line in lines][:20] == undisturbed.losses()[:20]
    assert min(line["step"] for line in lines if line["attempt"] == 2) >= 20, "it went on from memory"
    assert job.manifest(100)["model_sha256"] == undisturbed.manifest(100)["model_sha256"]


def test_a_kill_in_mid_save_leaves_what_was_there(new_job: NewJob, store: tuple[int, Path]) -> None:
    port, folder = store
    undisturbed = new_job("undisturbed").run(1)
    job = in_store(new_job("job"), port, "mid-save").but(steps=2).run(1)
    with Proxy(port, pause=0.05) as proxy:  # so that the kill comes before the manifest
        running = in_store(job.but(steps=6), proxy.port, "mid-save").start(1, attempt=2)
        shard = folder / BUCKET / "mid-save" / "step-00000004.attempt-2-restart-0"
        appear(shard)
        running.kill()
    (shard / "manifest.json").unlink(missing_ok=True)  # where the kill came too late
    job = in_store(job.but(steps=6), port, "mid-save").run(1, attempt=3)
    assert job.losses() == undisturbed.losses()
    assert not shard.exists(), "the next attempt cleans up"


def test_a_cut_connection_costs_the_save_and_nothing_else(
    tmp_path: Path, store: tuple[int, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(store[0]) as proxy:
        settings = make_settings(tmp_path, proxy.port, "cut")
        saver = begun(settings)
        put(saver, 10)
        proxy.cut_after = 20_000
        with caplog.at_level(logging.WARNING):
            put(saver, 20)
        assert "The checkpoint of step 20 was not written, the newest one is that of step 10" in caplog.text
        proxy.cut_after = None
        assert newest_step(settings) == 10
        put(saver, 30)
        assert newest_step(settings) == 30
        assert not list(settings.checkpoints.glob(".*"))


def test_a_slow_store_does_not_hold_up_the_step(tmp_path: Path, store: tuple[int, Path]) -> None:
    with Proxy(store[0], pause=0.02) as proxy:
        saver = begun(make_settings(tmp_path, proxy.port, "slow"))
        saver.save(10, State({"model/w": torch.zeros(50_000)}), before_commit=lambda: None)
        assert saver.committed_step == 0, "training goes on while it is written"
        saver.wait()
        assert saver.committed_step == 10


def test_a_full_store_costs_the_save_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        with server(disk) as port:
            settings = make_settings(tmp_path, port, "full")
            saver = begun(settings)
            put(saver, 10)
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(700 << 10))
            with caplog.at_level(logging.WARNING):
                put(saver, 20)
            assert "step 20 was not written" in caplog.text
            ballast.unlink()
            put(saver, 30)
            assert newest_step(settings) == 30
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def there_is(store: tuple[int, Path], prefix: str) -> list[str]:
    """The checkpoints in the store, good or not, which may be empty folders of the server where objects were."""
    folders = (store[1] / BUCKET / prefix).glob("step-*")
    return sorted(path.name.partition(".")[0] for path in folders if any(path.iterdir()))


def no_room(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_failed_saves_leave_nothing_in_the_store(tmp_path: Path, store: tuple[int, Path]) -> None:
    """A bucket with a quota has room for the next one."""
    saver = begun(make_settings(tmp_path, store[0], "failed"))
    put(saver, 10)
    for step in (20, 30):
        saver.save(step, State({"model/w": torch.zeros(50_000)}), before_commit=no_room)
        saver.wait(needed=False)
        assert there_is(store, "failed") == ["step-00000010"]


def test_what_a_deletion_left_is_deleted_by_the_next_save(
    tmp_path: Path, store: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(tmp_path, store[0], "debris")
    saver = begun(settings)
    for step in (10, 20):
        put(saver, step)
    with monkeypatch.context() as patch:
        whole = Remote.delete
        patch.setattr(Remote, "delete", lambda *those: whole(*those) if those[1].endswith(MANIFEST) else no_room())
        put(saver, 30)
    remote = open_remote(settings)
    assert remote is not None
    assert [one.name.partition(".")[0] for one in remote.listing().unfinished] == ["step-00000010"]
    remote.put("step-00000015.attempt-2-restart-0/shard-00000-of-00001.safetensors", b"a later attempt is saving")
    remote.put("step-00000016.attempt-1-restart-0/shard-00000-of-00001.safetensors", b"so is a peer that writes, too")
    put(saver, 40)
    assert there_is(store, "debris") == [f"step-000000{step}" for step in (15, 16, 30, 40)]


def test_uploads_that_a_kill_left_are_aborted(tmp_path: Path, store: tuple[int, Path]) -> None:
    """And none of another folder's."""
    settings = make_settings(tmp_path, store[0], "uploads")
    begun(settings)
    files = fsspec.filesystem("s3", endpoint_url=settings.plan.checkpoint_endpoint, skip_instance_cache=True)
    for key in ("uploads/step-00000010.attempt-1-restart-0/shard", "uploads-2/shard"):
        upload = files.call_s3("create_multipart_upload", Bucket=BUCKET, Key=key)
        part = {"Bucket": BUCKET, "Key": key, "UploadId": upload["UploadId"], "PartNumber": 1}
        files.call_s3("upload_part", Body=b"x", **part)
    begun(replace(settings, attempt=2))
    assert [upload["Key"] for upload in files.list_multipart_uploads(BUCKET)] == ["uploads-2/shard"]


def test_what_was_found_to_be_bad_takes_no_good_one_s_place(tmp_path: Path, store: tuple[int, Path]) -> None:
    settings = make_settings(tmp_path, store[0], "retention")
    first = begun(settings)
    for step in (250, 300):
        put(first, step)
    later = replace(settings, attempt=2)
    second = begun(later)
    lineages.write(later.checkpoints, "uid", Lineage({1: 0, 2: 250}), open_remote(later))
    put(second, 300)
    left = open_remote(later)
    assert left is not None
    assert [(one.step, one.attempt) for one in left.saved()] == [(300, 2), (250, 1)]


def test_a_corrupt_object_is_passed_over(tmp_path: Path, store: tuple[int, Path]) -> None:
    port, folder = store
    settings = make_settings(tmp_path, port, "corrupt")
    saver = begun(settings)
    for step in (10, 20):
        put(saver, step)
    (shard,) = (folder / BUCKET / "corrupt").glob("step-00000020*/shard-*")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    with shard.open("r+b") as file:  # in place: the server keeps attributes on the file
        file.write(data)
    assert newest_step(settings) == 10


def test_an_older_attempt_may_not_publish_and_its_branch_is_never_taken(
    tmp_path: Path, store: tuple[int, Path]
) -> None:
    port, _ = store
    old = begun(make_settings(tmp_path, port, "late", name="old"))
    put(old, 10)
    settings = make_settings(tmp_path, port, "late", attempt=2, name="new")
    new = begun(settings)
    with pytest.raises(SupersededError, match="attempt 2 has begun; attempt 1 may not write any more"):
        put(old, 30)
    put(new, 20)
    assert newest_step(settings) == 20
    remote = open_remote(settings)
    assert remote is not None
    remote.put("step-00000040.attempt-1-restart-0/manifest.json", b"{}")  # as if it had been faster
    loaded = newest(settings, Lineage({1: 0, 2: 10}))
    assert loaded is not None
    assert loaded.manifest.step == 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "Correct the Secret's credentials"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "Correct the Secret's credentials"),
    ],
)
def test_wrong_credentials_name_the_field(
    tmp_path: Path, store: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str
) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=r"spec\.checkpoint\.storage\.objectStore") as caught:
        begun(make_settings(tmp_path, store[0], "credentials"))
    assert message in str(caught.value)


def test_a_missing_bucket_names_the_field(tmp_path: Path, store: tuple[int, Path]) -> None:
    settings = make_settings(tmp_path, store[0], "x")
    plan = replace(settings.plan, checkpoint_url="s3://no-such-bucket/job")
    with pytest.raises(ConfigurationError, match=r"objectStore\.url: s3://no-such-bucket/job: .*Make the bucket"):
        begun(replace(settings, plan=plan))


def test_a_url_without_a_driver_names_the_field(tmp_path: Path) -> None:
    plan = TrainingPlan("OneDevice", checkpoint_url="nosuch://bucket/folder")
    with pytest.raises(ConfigurationError, match=r"objectStore.*nosuch"):
        Saver(Settings(plan, tmp_path), alone())


def test_a_folder_is_the_same_code_path(tmp_path: Path) -> None:
    plan = TrainingPlan("OneDevice", steps=100, global_batch_size=4, checkpoint_url=f"file://{tmp_path}/store")
    settings = Settings(plan, tmp_path / "here", job_uid="uid")
    put(begun(settings), 10)
    assert newest_step(settings) == 10
    assert os.listdir(tmp_path / "store" / "step-00000010.attempt-1-restart-0")  # noqa: PTH208


def test_what_a_dead_attempt_left_on_any_pods_disk_is_cleaned(tmp_path: Path, store: tuple[int, Path]) -> None:
    """Each pod has a folder of its own, though its ranks may commit nothing."""
    settings = replace(make_settings(tmp_path, store[0], "left", attempt=2), rank=1, world_size=2)
    settings.checkpoints.mkdir()
    for name in (".saving-00000010-attempt-1-restart-0", ".fetched-attempt-1-restart-0-1"):
        (settings.checkpoints / name).mkdir()
    Saver(settings, replace(alone(), rank=1, world_size=2)).prepare()
    assert not list(settings.checkpoints.iterdir())


def test_a_failed_upload_leaves_nothing_here(tmp_path: Path, store: tuple[int, Path]) -> None:
    with Proxy(store[0]) as proxy:
        saver = begun(make_settings(tmp_path, proxy.port, "away"))
    put(saver, 10)
    assert not list((tmp_path / "here").glob(".*"))
