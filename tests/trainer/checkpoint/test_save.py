"""Saving, one process at a time: what is refused, kept, tolerated and thrown away."""

import errno
import gc
import logging
import subprocess
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainmaster.wire.messages import CheckpointRecord
from trainmaster.wire.progress_page import ProgressFile
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import copier as copier_module
from trainmaster_trainer.checkpoint import lineage, save
from trainmaster_trainer.checkpoint.copier import Copier, TornCopyError
from trainmaster_trainer.checkpoint.image import Image
from trainmaster_trainer.checkpoint.layout import saved_steps
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.save import SaveFailedError, Saver
from trainmaster_trainer.checkpoint.shard import DTYPES, write_shard
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.writers import divide
from trainmaster_trainer.errors import ConfigurationError, PlaceTakenError, SupersededError
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies.gossip.checkpoint_writer import CheckpointWriter
from trainmaster_trainer.strategies.gossip.writer_lock import WriterLock
from trainmaster_trainer.strategies.one_device import OneDevice
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override

from tests.trainer.ranks import STATELESS, alone

SCALARS = {"optimizer": {**STATELESS["optimizer"], "x": [1]}}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    plan = TrainingPlan("OneDevice", steps=100, global_batch_size=4, checkpoint_every=10, checkpoint_keep=2)
    return Settings(plan, tmp_path / "checkpoints", job_uid="uid", attempt=1)


def make_saver(settings: Settings, **changes: Any) -> Saver:
    saver = Saver(replace(settings, **changes), alone())
    saver.prepare()
    return saver


def state(value: float = 1.0) -> State:
    return State({"model/w": torch.full((3, 2), value), "model/n": torch.tensor(7)}, SCALARS)


class HalfFrozen(Digits):
    """Its first matrix is not trained."""

    @override
    def model(self) -> torch.nn.Module:
        model = super().model()
        next(model.parameters()).requires_grad_(False)
        return model


def put(saver: Saver, step: int, value: float = 1.0) -> None:
    saver.save(step, state(value), before_commit=lambda: None)
    saver.wait()


def test_what_was_saved_is_what_is_read(settings: Settings) -> None:
    put(make_saver(settings), 10, 0.1)
    loaded = read(settings.checkpoints, 10)
    assert torch.equal(loaded.state.tensors["model/w"], torch.full((3, 2), 0.1))
    assert loaded.state.tensors["model/n"] == 7
    assert loaded.state.scalars == SCALARS
    manifest = loaded.manifest
    assert (manifest.step, manifest.attempt, manifest.job, manifest.cursor.samples) == (10, 1, "uid", 40)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back(settings: Settings, dtype: torch.dtype) -> None:
    tensors = {
        "model/a": torch.ones(5).to(dtype),
        "model/b": torch.zeros(0, 3).to(dtype),
        "model/c": torch.ones(()).to(dtype),
    }
    saver = make_saver(settings)
    saver.save(10, State(tensors), before_commit=lambda: None)
    saver.wait()
    loaded = read(settings.checkpoints, 10).state.tensors
    assert all(loaded[name].dtype == dtype and loaded[name].shape == tensors[name].shape for name in tensors)
    assert bytes(loaded["model/a"].view(torch.uint8)) == bytes(tensors["model/a"].view(torch.uint8))


def test_the_copy_is_taken_before_training_goes_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    written = write_shard
    monkeypatch.setattr(save, "write_shard", lambda *arguments: gate.wait() and written(*arguments))
    saver = make_saver(settings)
    live = state(1.0)
    saver.save(10, live, before_commit=lambda: None)
    live.tensors["model/w"].fill_(2.0)  # the next step
    gate.set()
    saver.wait()
    assert torch.equal(read(settings.checkpoints, 10).state.tensors["model/w"], torch.ones(3, 2))


def test_the_next_optimizer_step_waits_for_what_is_not_copied_yet(settings: Settings) -> None:
    weights = torch.nn.Parameter(torch.ones(2_000_000))
    optimizer = torch.optim.SGD([weights], lr=1.0)
    saver = make_saver(settings)
    for step in range(10, 60, 10):
        before = float(weights.detach()[0])
        saver.save(step, State({"model/w": weights.detach()}), lambda: None, settled=lambda _: True)
        weights.grad = torch.ones_like(weights)
        optimizer.step()
        saver.wait()
        assert (read(settings.checkpoints, step).state.tensors["model/w"] == before).all()


def test_a_weight_that_changes_while_it_is_copied_is_no_checkpoint() -> None:
    copier = Copier()
    weights = torch.ones(3)
    copier.begin({"w": weights}, lambda _: True)
    weights.add_(1)  # not by an optimizer
    with pytest.raises(TornCopyError, match="changed while it was copied"):
        copier.finish()
    copies = copier.begin({"w": weights}, lambda _: True)
    weights.add_(1)
    copier.finish()
    assert copies["w"].tolist() == [2, 2, 2], "from then on before training goes on"
    copier.close()


def test_there_is_room_for_one_image_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    copier = Copier()
    old = weakref.ref(copier.begin({"w": torch.ones(3)}, lambda _: False)["w"])

    def made(tensors: dict[str, torch.Tensor]) -> Image:
        assert old() is None
        return Image(tensors)

    monkeypatch.setattr(copier_module, "Image", made)
    copier.begin({"w": torch.ones(4)}, lambda _: False)
    copier.close()


def test_a_torn_copy_fails_that_save_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said as a report, and not raised: other ranks wait for what this one wrote."""
    gate = threading.Event()
    finish = Copier.finish
    monkeypatch.setattr(Copier, "finish", lambda copier: gate.wait() and finish(copier))
    saver = make_saver(settings)
    weights = torch.ones(3)
    saver.save(10, State({"model/w": weights}), lambda: None, settled=lambda _: True)
    weights.add_(1)  # not by an optimizer
    gate.set()
    with pytest.raises(SaveFailedError, match=r"^rank 0: a weight changed while it was copied"):
        saver.wait()
    assert not saved_steps(settings.checkpoints)
    put(saver, 20)
    assert saved_steps(settings.checkpoints) == [20]


def test_only_what_the_optimizer_steps_is_copied_later() -> None:
    """A weight that a forward pass changes (a target network's, say) may be torn."""
    strategy = OneDevice(HalfFrozen(hidden=4), alone(), {})
    frozen, *trained = [name for name, _ in strategy.model.named_parameters()]
    assert not strategy.settled(f"model/{frozen}")
    assert all(strategy.settled(f"model/{name}") for name in trained)


def test_whatever_goes_wrong_is_told_to_all_ranks(settings: Settings) -> None:
    """Also what nobody thought of: a rank that says nothing keeps the others waiting for half an hour."""
    saver = make_saver(settings)

    def odd() -> None:
        raise LookupError("what nobody thought of")

    saver.save(10, state(), before_commit=odd)
    with pytest.raises(SaveFailedError, match=r"^rank 0: LookupError: what nobody thought of"):
        saver.wait()
    assert not list(settings.checkpoints.glob("*step*"))


def test_the_metrics_reach_the_disk_before_the_checkpoint_is_seen(settings: Settings) -> None:
    seen = []
    saver = make_saver(settings)
    saver.save(10, state(), before_commit=lambda: seen.append(saved_steps(settings.checkpoints)))
    saver.wait()
    assert seen == [[]]
    assert saved_steps(settings.checkpoints) == [10]


def test_an_older_attempt_may_not_publish(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    old = make_saver(settings)
    new = make_saver(settings, attempt=2)
    old.save(10, state(), before_commit=lambda: None)
    with pytest.raises(SupersededError, match="attempt 2 has begun; attempt 1 may not write any more"):
        old.wait(needed=False)
    assert saved_steps(settings.checkpoints) == []
    assert "attempt 2 has begun" in caplog.text
    put(new, 10)
    assert read(settings.checkpoints, 10).manifest.attempt == 2
    assert not list(settings.checkpoints.glob(".*"))


@pytest.mark.parametrize("damage", [Path.mkdir, Path.touch], ids=["unreadable", "damaged"])
def test_nothing_is_published_while_it_cannot_be_told_who_has_begun(
    settings: Settings, damage: Callable[[Path], None]
) -> None:
    saver = make_saver(settings)
    fence = settings.checkpoints / "attempt.json"
    fence.unlink()
    damage(fence)
    saver.save(10, state(), before_commit=lambda: None)
    saver.wait(needed=False)  # training goes on
    assert "nothing is published while it cannot be told whether a later attempt has begun" in saver.last.problem
    assert saved_steps(settings.checkpoints) == []
    fence.rmdir() if fence.is_dir() else fence.unlink()
    put(saver, 20)
    assert saved_steps(settings.checkpoints) == [20]


def test_a_new_job_in_the_same_folder_shuts_the_old_one_out(settings: Settings) -> None:
    old = make_saver(settings, attempt=5)
    put(make_saver(settings, job_uid="other"), 10)
    with pytest.raises(PlaceTakenError, match=r"another job \(other\) has begun"):
        put(old, 20)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [lambda _: None, lambda path: path.write_text("{}"), Path.unlink, become_a_folder])
def test_a_checkpoint_of_the_same_step_is_replaced(settings: Settings, spoil: Callable[[Path], object]) -> None:
    """Whether it is good or bad: what the newest attempt has saved is what training goes on from."""
    put(make_saver(settings), 10, 1.0)
    again = make_saver(settings, attempt=2)
    spoil(settings.checkpoints / "step-00000010" / "manifest.json")
    put(again, 10, 2.0)
    assert read(settings.checkpoints, 10).manifest.attempt == 2
    assert len(list((settings.checkpoints / "step-00000010").iterdir())) == 2
    assert not list(settings.checkpoints.glob(".*"))


def test_the_newest_good_one_survives_any_retention(settings: Settings) -> None:
    plan = replace(settings.plan, checkpoint_keep=1)
    saver = make_saver(settings, plan=plan)
    put(saver, 10)
    (settings.checkpoints / "step-00000050").mkdir()  # bad, and newer by its name
    put(saver, 20)
    assert saved_steps(settings.checkpoints) == [20]


def test_what_was_given_up_or_is_bad_takes_no_good_one_s_place(settings: Settings) -> None:
    """It stays while there is room for it beside those."""
    plan = replace(settings.plan, checkpoint_keep=3)
    first = make_saver(settings, plan=plan)
    for step in (200, 250, 300):
        put(first, step)
    (settings.checkpoints / "step-00000250" / "manifest.json").write_text("{}")
    second = make_saver(settings, plan=plan, attempt=2)
    lineage.write(settings.checkpoints, "uid", Lineage({1: 0, 2: 200}))  # 300 was found to be bad too
    put(second, 210)
    assert saved_steps(settings.checkpoints) == [300, 210, 200]
    put(second, 220)
    assert saved_steps(settings.checkpoints) == [220, 210, 200]
    put(second, 230)
    assert saved_steps(settings.checkpoints) == [230, 220, 210]


def test_what_dead_attempts_left_is_cleaned(settings: Settings) -> None:
    settings.checkpoints.mkdir()
    for name in (".saving-00000010-attempt-1-restart-0", ".replaced-step-00000010-abc"):
        (settings.checkpoints / name).mkdir()
        (settings.checkpoints / name / "shard").write_text("x")
    (settings.checkpoints / "metrics.jsonl").write_text("")
    make_saver(settings, attempt=2)
    assert sorted(path.name for path in settings.checkpoints.iterdir()) == ["attempt.json", "metrics.jsonl"]


def full_disk(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_failed_saves_are_warnings_and_leave_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    saver = make_saver(settings)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(save, "write_shard", full_disk)
        for step in (10, 20):
            saver.save(step, state(), before_commit=lambda: None)
            saver.wait(needed=False)
    assert caplog.text.count("is that of step 0: rank 0: [Errno 28] No space left on device") == 2
    assert not list(settings.checkpoints.glob(".*"))
    put(saver, 30)  # there is space again
    assert saved_steps(settings.checkpoints) == [30]


def test_a_disk_that_is_really_full_costs_nothing_but_the_save(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A tmpfs of 256 KiB (needs root, as the cluster tests do): the next save finds the room that it needs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    try:
        settings = replace(settings, checkpoints=disk / "checkpoints")
        saver = make_saver(settings)
        put(saver, 10)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(190 << 10))
        big = State({"model/w": torch.ones(20_000)})
        for step in (20, 30):
            saver.save(step, big, before_commit=lambda: None)
            saver.wait(needed=False)
        assert saver.committed_step == 10
        assert caplog.text.count("No space left on device") == 2
        assert [path.name for path in settings.checkpoints.glob("*-*")] == ["step-00000010"]
        assert not list(settings.checkpoints.glob(".*"))
        ballast.unlink()
        saver.save(40, big, before_commit=lambda: None)
        saver.wait()
        assert saved_steps(settings.checkpoints) == [40, 10]
        assert read(settings.checkpoints, 40).manifest.step == 40
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_the_agent_can_read_of_a_failed_save_until_one_is_good(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ProgressFile(str(tmp_path / "progress"), create=True)
    saver = make_saver(settings, progress_file=tmp_path / "progress")
    with monkeypatch.context() as patch:
        patch.setattr(save, "write_shard", full_disk)
        saver.save(10, state(), before_commit=lambda: None)
        saver.wait(needed=False)
    assert page.read_problem() == (10, "rank 0: [Errno 28] No space left on device")
    put(saver, 20)
    assert page.read_problem() == (0, "")


def test_the_agent_need_not_read_storage_to_know_of_a_checkpoint(settings: Settings, tmp_path: Path) -> None:
    page = ProgressFile(str(tmp_path / "progress"), create=True)
    put(make_saver(settings, progress_file=tmp_path / "progress"), 20)
    manifest = read(settings.checkpoints, 20).manifest
    record = CheckpointRecord(20, manifest.time, manifest.model_sha256, manifest.seconds)
    assert page.read_checkpoint() == record


def test_metrics_that_do_not_fit_are_a_failed_save_of_all_ranks(settings: Settings) -> None:
    """The others wait for the first rank's word, so it is given, and not raised."""
    saver = make_saver(settings)
    saver.save(10, state(), before_commit=full_disk)
    with pytest.raises(SaveFailedError, match=r"^rank 0: \[Errno 28\]"):
        saver.wait()
    assert saved_steps(settings.checkpoints) == []


def test_the_last_checkpoint_must_succeed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = make_saver(settings)
    monkeypatch.setattr(save, "write_shard", full_disk)
    with pytest.raises(SaveFailedError):
        put(saver, 100)


def test_a_folder_that_cannot_be_made_is_a_configuration_error(settings: Settings) -> None:
    settings.checkpoints.write_text("a file")
    with pytest.raises(ConfigurationError, match=r"spec\.checkpoint\.storage: .*checkpoints"):
        make_saver(settings)


def test_tensors_are_divided_by_bytes_among_those_who_have_them() -> None:
    everywhere = {"a": 100, "b": 60, "c": 50, "d": 0}
    owners = divide([everywhere, everywhere])
    assert owners == {"a": 0, "b": 1, "c": 1, "d": 0}
    stages = divide([{"a": 5, "x": 1}, {"b": 5, "x": 1}])
    assert (stages["a"], stages["b"]) == (0, 1)


def test_a_saver_that_is_left_keeps_no_memory(settings: Settings) -> None:
    """Gossip's checkpoint writer stops whenever a lower rank is back; every optimizer of the process knew it."""
    checkpoint_writer = object.__new__(CheckpointWriter)
    checkpoint_writer._saver, checkpoint_writer._journal = make_saver(settings), None
    checkpoint_writer._lock = WriterLock(settings.checkpoints)
    checkpoint_writer._saver.save(10, state(), before_commit=lambda: None)
    copier = weakref.ref(checkpoint_writer._saver._copier)
    checkpoint_writer._leave_office()
    gc.collect()
    assert copier() is None
