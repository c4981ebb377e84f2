"""`resumeFrom` another job whose checkpoints are in an object store: by its name, by its URL, and what cannot be."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from trainmaster.cli.audit import audit
from trainmaster.cli.check import EXIT_GOOD
from trainmaster.wire import names
from trainmaster.wire.manifest import MODEL
from trainmaster_trainer.checkpoint.manifest_check import read_manifest
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.settings import Settings

from tests.trainer.finding import find_foreign
from tests.trainer.ranks import Job, NewJob
from tests.trainer.s3 import BUCKET, KEYS, server


class Shop:
    """A running S3 server, the folder that it serves, and jobs in it."""

    def __init__(self, port: int, folder: Path, new_job: NewJob) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.folder = folder / BUCKET
        self._new_job = new_job

    def job(self, name: str, **changes: object) -> Job:
        """A job that keeps its checkpoints under this name."""
        there = {"checkpoint_url": self.url(name), "checkpoint_endpoint": self.endpoint, "checkpoint_keep": 5}
        return replace(self._new_job(name, **there, **changes), variables=dict(KEYS))

    def url(self, name: str) -> str:
        """Where that is."""
        return f"s3://{BUCKET}/{name}"

    def shards(self, name: str, step: int) -> list[Path]:
        """The server's files."""
        return list((self.folder / name).glob(f"step-{step:08d}*/shard-*"))


@pytest.fixture
def shop(tmp_path: Path, new_job: NewJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """An empty bucket."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "s3").mkdir()
    with server(tmp_path / "s3") as port:
        yield Shop(port, tmp_path / "s3", new_job)


def steps(job: Job) -> list[int]:
    return [line["step"] for line in job.lines() if "loss" in line]


def refusal(job: Job) -> str:
    """What is said by a job that cannot begin."""
    running = job.start(2)
    assert running.wait() == [78, 78], running.output()
    return running.output()


def test_it_is_found_by_its_name_and_the_run_that_saved_last_counts(shop: Shop) -> None:
    shop.job("yesterday-0a1b2c3d", steps=4).run(1)
    time.sleep(1.1)  # a store tells when an object was written in whole seconds
    shop.job("yesterday-99999999", steps=2).run(2)
    shop.job("yesterday-evening-0a1b2c3d", steps=5).run(1)  # another job, whose name begins alike
    today = shop.job("today-11111111", resume_job="yesterday").run(2)
    assert steps(today) == [3, 4, 5, 6]
    assert [step for step in (2, 4, 6) if shop.shards("today-11111111", step)] == [2, 4, 6], "its own, the first too"


def test_by_its_url_the_same_model_comes_out(shop: Shop) -> None:
    whole = shop.job("whole").run(2)
    first = shop.job("first", steps=4).run(2)
    url = shop.url("first")
    assert steps(shop.job("newest", resume_from=url).run(2)) == [5, 6]
    named = shop.job("named", resume_from=url, resume_step=2).run(2)
    assert steps(named) == [3, 4, 5, 6]
    assert named.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]
    assert audit(str(named.folder)) == EXIT_GOOD, "it can tell that steps 1 and 2 were the other job's"
    assert first.manifest(4)["step"] == 4


def test_another_job_may_prune_what_is_being_fetched(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shop.job("first").run(1)
    saved = {step: next((shop.folder / "first").glob(f"step-{step:08d}*")) for step in (2, 4, 6)}
    later = tmp_path / saved[6].name
    shutil.rmtree(saved[2])
    shutil.move(saved[6], later)
    fetch = Remote.fetch

    def pruned(remote: Remote, name: str, path: Path, length: int) -> None:
        if name.startswith(saved[4].name) and saved[4].exists():  # the other job goes on meanwhile
            shutil.move(later, saved[6])
            shutil.rmtree(saved[4])
        fetch(remote, name, path, length)

    monkeypatch.setattr(Remote, "fetch", pruned)
    settings = Settings(first.plan, tmp_path / "checkpoints")
    expected = read_manifest(first.checkpoints() / "step-00000006", 6).shapes(MODEL)
    loaded = find_foreign(shop.url("first"), settings, expected)
    assert loaded is not None
    assert loaded.manifest.step == 6


def test_a_bad_one_is_passed_over_unless_it_is_asked_for(shop: Shop) -> None:
    shop.job("first", steps=4).run(1)
    (shard,) = shop.shards("first", 4)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    with shard.open("r+b") as file:  # in place: the server keeps attributes on the file
        file.write(data)
    url = shop.url("first")
    assert steps(shop.job("second", resume_from=url).run(1)) == [3, 4, 5, 6]
    asked = refusal(shop.job("third", resume_from=url, resume_step=4))
    assert f"spec.checkpoint.resumeFrom: step 4 in {url} cannot be used: it is not there, or not good. Name" in asked


def test_a_branch_that_its_job_left_is_not_taken(shop: Shop) -> None:
    first = shop.job("first", steps=4).run(1)
    doubting = {**first.variables, names.ENV_RESUME_BEFORE: "4"}
    replace(first.but(steps=3), variables=doubting).run(1, attempt=2)
    assert shop.shards("first", 4), "it is still there"
    assert steps(shop.job("second", resume_from=shop.url("first")).run(1)) == [4, 5, 6]


def test_nothing_to_begin_with_is_named(shop: Shop) -> None:
    shop.job("today-11111111", steps=1).run(1)
    missing = refusal(shop.job("second", resume_job="never"))
    assert f"spec.checkpoint.resumeFrom.job: 'never' has no good checkpoint in s3://{BUCKET}." in missing
    empty = refusal(shop.job("third", resume_from=shop.url("nowhere")))
    assert f"spec.checkpoint.resumeFrom: there is no good checkpoint in {shop.url('nowhere')}" in empty
    bucket = shop.job("fourth", resume_from="s3://no-such-bucket/first").start(1)
    assert bucket.wait() == [78], bucket.output()
    assert "spec.checkpoint.resumeFrom" in bucket.output()
