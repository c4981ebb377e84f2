"""The contract of every place that a training goes on from (`checkpoint/stores/`): real files, a real S3 server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.batch_losses import Losses
from trainmaster_trainer.checkpoint.checkpointable import Snapshots, WholeState
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.memory import Memory, slots_in
from trainmaster_trainer.checkpoint.resume import first_good
from trainmaster_trainer.checkpoint.save import SaveFailedError, Saver
from trainmaster_trainer.checkpoint.slot import step_of
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores import open_store
from trainmaster_trainer.checkpoint.stores.foreign import open_foreign
from trainmaster_trainer.checkpoint.stores.replica_memory import ReplicaMemory
from trainmaster_trainer.checkpoint.stores.store import Source
from trainmaster_trainer.errors import ConfigurationError, SupersededError
from trainmaster_trainer.settings import Settings
from typing_extensions import override

from tests.trainer.ranks import STATELESS, alone
from tests.trainer.s3 import BUCKET, KEYS, server

WRITTEN = ("folder", "private folder", "object store")
READ = (*WRITTEN, "memory", "another job's folder", "another job's objects")
OUTLINE = State({"model/w": torch.zeros(8)}, STATELESS)


class Training(WholeState):
    """A training of one tensor."""

    snapshots = Snapshots.REPLICATED

    def __init__(self, value: float) -> None:
        self.value = value

    @override
    def state(self) -> State:
        return State({"model/w": torch.full((8,), self.value)}, STATELESS)

    @override
    def restore(self, state: State) -> None:
        raise AssertionError


@dataclass
class Place:
    """One of the places, for a job of one rank: what its attempts save, and what a later attempt finds."""

    kind: str
    folder: Path
    bucket: Path
    endpoint: str
    keep: int = 9

    def settings(self, attempt: int = 1, resume_before: int | None = None) -> Settings:
        """Of the job that saves."""
        remote = "obj" in self.kind
        plan = TrainingPlan(
            "OneDevice",
            steps=1000,
            global_batch_size=4,
            checkpoint_keep=self.keep,
            checkpoint_shared=self.kind != "private folder",
            checkpoint_url=f"s3://{BUCKET}/job" if remote else None,
            checkpoint_endpoint=self.endpoint if remote else None,
            memory_every=1,
        )
        memory = self.folder / "memory"
        memory.mkdir(parents=True, exist_ok=True)
        return Settings(
            plan, self.folder / "job", job_uid="uid", attempt=attempt, memory=memory, resume_before=resume_before
        )

    def save(self, *steps: int, attempt: int = 1) -> Saver:
        """Save these steps, the tensor being full of the number of the step."""
        settings = self.settings(attempt)
        saver = Saver(settings, alone())
        saver.prepare()
        if self.kind == "memory":
            training = Training(0.0)
            memory = Memory(settings, alone(), training)
            memory.start(0)
            for step in steps:
                training.value = float(step)
                memory.keep(step, Losses(alone()).pending())
            return saver
        for step in steps:
            saver.save(step, Training(float(step)).state(), before_commit=lambda: None)
            saver.wait()
        return saver

    def source(self, attempt: int = 9, resume_before: int | None = None) -> Source[object]:
        """What a later attempt, or another job, goes on from."""
        settings = self.settings(attempt, resume_before)
        if self.kind == "memory":
            return ReplicaMemory(settings, alone(), 0)
        if "another" not in self.kind:
            return open_store(settings, alone())
        where = settings.plan.checkpoint_url or str(settings.checkpoints)
        plan = replace(settings.plan, checkpoint_url=None, resume_from=where)
        other = replace(settings, plan=plan, job_uid="other", checkpoints=self.folder / "other")
        other.checkpoints.mkdir(exist_ok=True)
        return open_foreign(other, alone())

    def found(self, way: Mapping[int, int] | None = None, outline: State = OUTLINE, **settings: int) -> float | None:
        """The number in the tensor that a later attempt goes on from."""
        lineage = Lineage(dict(way or {}), "uid", settings.get("resume_before"))
        state = first_good(self.source(**settings), alone(), outline, lineage)
        return float(state.state.tensors["model/w"][3]) if state else None  # type: ignore[attr-defined]

    def files(self, step: int) -> list[Path]:
        """The files that hold the tensor of a step."""
        if self.kind == "memory":
            return [path for path in slots_in(self.folder / "memory") if step_of(path) == step]
        root = self.bucket / "job" if "obj" in self.kind else self.folder / "job"
        return list(root.glob(f"step-{step:08d}*/shard-*"))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A server, and the folder that it serves."""
    folder = tmp_path_factory.mktemp("s3")
    with server(folder) as port:
        yield port, folder / BUCKET


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, s3: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    port, bucket = s3
    yield Place(request.param, tmp_path, bucket, f"http://127.0.0.1:{port}")
    shutil.rmtree(bucket / "job", ignore_errors=True)


everywhere = pytest.mark.parametrize("place", READ, indirect=True)
where_it_writes = pytest.mark.parametrize("place", WRITTEN, indirect=True)


@everywhere
def test_there_is_nothing_at_first_and_then_the_newest(place: Place) -> None:
    assert place.found() is None
    place.save(10, 20)
    assert place.found() == 20


@everywhere
def test_what_is_damaged_is_passed_over_for_the_one_before(place: Place) -> None:
    place.save(10, 20)
    (file,) = place.files(20)
    with file.open("r+b") as data:  # in place: the server keeps attributes on the file
        data.truncate(40)
    assert place.found() == 10


@everywhere
def test_what_was_given_up_is_not_taken(place: Place) -> None:
    place.save(10, 20)
    open_store(place.settings(2), alone()).go_on(Lineage({1: 0, 2: 10}))  # another job reads it there
    assert place.found({1: 0, 2: 10}) == 10


@pytest.mark.parametrize("place", [*WRITTEN, "memory"], indirect=True)
def test_what_is_doubted_is_not_taken(place: Place) -> None:
    place.save(10, 20)
    left = None if place.kind == "memory" else 10  # no snapshot is older than what is doubted
    assert place.found(resume_before=20) == left


@everywhere
def test_another_model_is_never_taken(place: Place) -> None:
    place.save(10)
    wide = State({"model/w": torch.zeros(9)}, STATELESS)
    if place.kind == "memory":  # a task that was edited begins with a checkpoint, which says so
        assert place.found(outline=wide) is None
        return
    with pytest.raises(ConfigurationError, match="First difference: w is float32"):
        place.found(outline=wide)


@where_it_writes
def test_an_attempt_that_was_superseded_makes_nothing_visible(place: Place) -> None:
    saver = place.save(10)
    place.save(attempt=2)
    saver.save(20, Training(20.0).state(), before_commit=lambda: None)
    with pytest.raises(SupersededError):
        saver.wait()
    assert place.found() == 10
    assert not place.files(20)


@where_it_writes
def test_who_is_set_back_once_more_sees_what_was_saved_meanwhile(place: Place) -> None:
    """A store is opened once for an attempt, which may resume several times (a parameter server that lost a shard)."""
    store = open_store(place.settings(9), alone())
    for step in (10, 30):
        place.save(step)
        (file,) = place.files(step)
        damaged = file.read_bytes()
        with file.open("r+b") as data:
            data.truncate(40)
        first_good(store, alone(), OUTLINE, Lineage())
        store.go_on(Lineage())
        with file.open("r+b") as data:
            data.write(damaged)
        found = first_good(store, alone(), OUTLINE, Lineage())
        assert found is not None
        assert found.manifest.step == step
        store.go_on(Lineage())


@where_it_writes
def test_as_many_stay_as_are_to_be_kept(place: Place) -> None:
    place.keep = 2
    place.save(10, 20, 30)
    store = open_store(place.settings(2), alone())
    assert store.newest_step(Lineage()) == 30
    assert not place.files(10)
    assert place.found() == 30


@where_it_writes
def test_a_save_that_fails_leaves_nothing_and_the_next_one_is_good(place: Place) -> None:
    saver = place.save(10)

    def full() -> None:
        raise OSError(28, "No space left on device")

    saver.save(20, Training(20.0).state(), before_commit=full)
    with pytest.raises(SaveFailedError, match="No space left"):
        saver.wait()
    assert not place.files(20)
    assert not list((place.folder / "job").glob(".saving-*"))
    saver.save(30, Training(30.0).state(), before_commit=lambda: None)
    saver.wait()
    assert place.found() == 30
