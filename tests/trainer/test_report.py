"""What is told: metrics file, progress page, losses, settings."""

import errno
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainmaster.core.report import waits
from trainmaster.wire import codec, names
from trainmaster.wire.messages import RankProgress
from trainmaster.wire.progress_page import ProgressFile
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer import batch_losses as losses_module
from trainmaster_trainer import metrics as metrics_module
from trainmaster_trainer.batch_losses import Losses, StepLoss
from trainmaster_trainer.checkpoint.layout import Fence
from trainmaster_trainer.errors import ConfigurationError, NonFiniteLossError, PlaceTakenError, SupersededError
from trainmaster_trainer.metrics import Metrics
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.rank_report import check_finite
from trainmaster_trainer.settings import Settings

from tests.trainer.ranks import NewJob, Options, alone


def steps_in(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_what_is_not_a_number_is_null(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, attempt=1, resumed_step=0)
    metrics.add(1, loss=math.nan)
    metrics.finish(1, {"perplexity": math.inf})
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert first["loss"] is None
    assert json.loads((tmp_path / "result.json").read_text())["metrics"] == {"perplexity": None}


@pytest.mark.parametrize(
    ("tail", "resumed", "kept"),
    [
        ("", 2, [1, 2]),
        ("", 3, [1, 2, 3]),
        ("", 0, []),
        ('{"step": 4, "lo', 3, [1, 2, 3]),
        ('{"step": 3, "evaluation": {}}\n', 3, [1, 2, 3]),
        ("\0\0\0\0", 9, [1, 2, 3]),
        ("[]\n", 9, [1, 2, 3]),
    ],
)
def test_a_resume_keeps_the_lines_up_to_its_step(tmp_path: Path, tail: str, resumed: int, kept: list[int]) -> None:
    lines = "".join(json.dumps({"step": step, "loss": 0.5}) + "\n" for step in (1, 2, 3))
    (tmp_path / "metrics.jsonl").write_text(lines + tail)
    metrics = Metrics(tmp_path, attempt=2, resumed_step=resumed)
    assert steps_in(tmp_path) == kept
    metrics.add(resumed + 1, loss=0.25)
    metrics.flush()
    assert steps_in(tmp_path) == [*kept, resumed + 1]


def test_the_end_is_a_line_and_a_file(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, attempt=1, resumed_step=0)
    metrics.finish(9, {"accuracy": 0.5})
    assert json.loads((tmp_path / "result.json").read_text()) == {"step": 9, "metrics": {"accuracy": 0.5}}
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["evaluation"] == {"accuracy": 0.5}


def test_an_older_attempt_writes_no_line_between_those_of_a_later_one(tmp_path: Path) -> None:
    settings = Settings(TrainingPlan(strategy="AllReduce"), tmp_path, job_uid="uid")
    old = Metrics.for_attempt(settings, 0, 0)
    later = replace(settings, attempt=2)
    Fence(tmp_path, "uid", 2).close()
    new = Metrics.for_attempt(later, 0, 0)
    for metrics in (new, old):
        metrics.add(1, loss=0.5)
    new.flush()
    with pytest.raises(SupersededError, match="attempt 2 has begun; attempt 1 may not write any more"):
        old.flush()
    new.finish(1, {"accuracy": 0.5})
    with pytest.raises(SupersededError):
        old.finish(1, {"accuracy": 0.1})
    assert [json.loads(line)["attempt"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [2, 2]
    assert json.loads((tmp_path / "result.json").read_text())["metrics"] == {"accuracy": 0.5}


def test_an_older_attempt_with_short_steps_writes_on_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines would come after those that the later attempt has cut off."""
    now = 100.0
    monkeypatch.setattr("trainmaster_trainer.metrics.time.monotonic", lambda: now)
    old = Metrics.for_attempt(Settings(TrainingPlan(strategy="AllReduce"), tmp_path, job_uid="uid"), 0, 0)
    old.add(1, loss=0.5)
    old.flush()
    Fence(tmp_path, "uid", 2).close()
    now += 0.03
    old.add(2, loss=0.5)
    with pytest.raises(SupersededError):
        old.flush()
    assert steps_in(tmp_path) == [1]


def test_an_attempt_that_nobody_could_end_ends_when_the_next_one_has_begun(new_job: NewJob) -> None:
    job = new_job(steps=100_000, checkpoint_every=5, arguments={"seconds": 0.05})
    old = job.start(1)
    old.reach(12)
    job.but(steps=1000, checkpoint_every=100, arguments={}).run(1, attempt=2)
    assert old.wait() == [1]
    assert "SupersededError: attempt 2 has begun; attempt 1 may not write any more" in old.output()
    assert len(job.losses()) == 1000
    assert job.result()["step"] == 1000


def test_nor_does_another_job_that_had_the_folder_before(tmp_path: Path) -> None:
    old = Metrics.for_attempt(Settings(TrainingPlan(strategy="AllReduce"), tmp_path, job_uid="uid", attempt=5), 0, 0)
    Fence(tmp_path, "other", 1).close()
    with pytest.raises(PlaceTakenError, match=r"spec.checkpoint.storage: another job \(other\) has begun"):
        old.flush()


def test_lines_wait_while_it_cannot_be_told_who_has_begun(tmp_path: Path) -> None:
    """A folder in the place of the file gives an I/O error, as a network file system does that is away."""
    (tmp_path / "attempt.json").mkdir()
    metrics = Metrics.for_attempt(Settings(TrainingPlan(strategy="AllReduce"), tmp_path, job_uid="uid"), 0, 0)
    metrics.add(1, loss=0.5)
    metrics.flush()  # training goes on
    assert steps_in(tmp_path) == []
    with pytest.raises(OSError, match="not a regular file"):
        metrics.sync()  # and no checkpoint is made that lacks its lines
    (tmp_path / "attempt.json").rmdir()
    Fence(tmp_path, "uid", 1).close()
    metrics.add(2, loss=0.4)
    metrics.flush()
    assert steps_in(tmp_path) == [1, 2]


def test_with_an_object_store_the_folder_is_of_no_other_attempt(tmp_path: Path) -> None:
    """Whatever lies there of a run that had none."""
    Fence(tmp_path, "", 9).close()
    plan = TrainingPlan(strategy="AllReduce", checkpoint_url=f"file://{tmp_path}/store")
    metrics = Metrics.for_attempt(Settings(plan, tmp_path), 0, 0)
    metrics.add(1, loss=0.5)
    metrics.flush()
    assert steps_in(tmp_path) == [1]


def test_lines_wait_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no checkpoint may claim that they are there."""
    metrics = Metrics(tmp_path, attempt=1, resumed_step=0)
    metrics.add(1, loss=0.5)
    metrics.flush()

    def half_of_it(descriptor: int, data: memoryview) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(metrics_module, "write_all", half_of_it)
        for step in (2, 3):
            metrics.add(step, loss=0.5)
            metrics.flush()
            assert steps_in(tmp_path) == [1]
            with pytest.raises(OSError, match="No space left"):
                metrics.sync()
    metrics.add(4, loss=0.5)
    metrics.flush()
    metrics.sync()
    assert steps_in(tmp_path) == [1, 2, 3, 4]


def test_lines_that_wait_make_no_try_dearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may be full for days."""
    metrics = Metrics(tmp_path, attempt=1, resumed_step=0)
    tried = []

    def full(_descriptor: int, data: memoryview) -> None:
        tried.append(len(data))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(metrics_module, "write_all", full)
        for step in range(1, 51):
            metrics.add(step, loss=0.5)
            metrics.flush()
    assert len(tried) == 50
    assert len({*tried}) == 1, "the first line alone"
    metrics.flush()
    assert steps_in(tmp_path) == list(range(1, 51))


def test_the_page_tells_step_phase_and_speed(tmp_path: Path) -> None:
    page = ProgressFile(str(tmp_path / "page"), create=True)
    progress = Progress(tmp_path / "page", global_batch_size=10)
    assert page.read().phase == "load"
    progress.start(4, 4)
    assert (page.read().phase, page.read().step, page.read().checkpoint_step) == ("train", 4, 4)
    for step in (5, 6):
        progress.stepped(step, checkpoint_step=0)
        progress.write()
    read = page.read()
    assert (read.step, read.checkpoint_step) == (6, 4)
    assert read.samples_per_second > 0
    assert read.step_seconds > 0
    progress.enter("save")
    assert page.read().phase == "save"
    assert read.save_seconds == 0
    progress.enter("evaluate", checkpoint_step=6)
    assert page.read().save_seconds > 0
    assert (page.read().phase, page.read().checkpoint_step) == ("evaluate", 6)


def test_who_holds_the_others_up_can_be_told(new_job: NewJob) -> None:
    """All steps take as long as the slowest rank's; only that rank is busy all the time."""
    running = new_job(task="small_tasks:Uneven", arguments={"seconds": 0.25}, steps=8, checkpoint_every=50).start(3)
    assert running.wait() == [0, 0, 0]
    busy = [page.read().busy_seconds for page in running.pages]
    steps = [page.read().step_seconds for page in running.pages]
    assert busy[1] > 0.1
    assert max(busy[0], busy[2]) < 0.5 * busy[1]
    assert min(steps) > 0.1


def test_how_long_a_rank_waits_for_its_samples_is_told(tmp_path: Path) -> None:
    page = ProgressFile(str(tmp_path / "page"), create=True)
    progress = Progress(tmp_path / "page", global_batch_size=10)
    progress.start(0, 0)
    assert page.read().data_share == 0.0
    for step, (now, waited) in enumerate([(100.0, 9.0), (101.0, 0.0), (102.0, 0.9), (104.0, 2.1)], start=1):
        progress.read(waited, now=now)
        progress.stepped(step, checkpoint_step=0)
    progress.write()
    assert page.read().data_share == pytest.approx(0.75), "of the 4 seconds between the first and the last"


def test_a_rank_that_waits_for_slow_samples_says_so(new_job: NewJob) -> None:
    task = {"task": "reading_data_tasks:WithOddSamples", "arguments": {"seconds": 0.0}, "checkpoint_every": 50}
    running = new_job(**task, data_workers=0, steps=12, global_batch_size=20).start(1)
    assert running.wait() == [0], running.output()
    assert running.pages[0].read().data_share > 0.5


def test_the_shares_of_exchange_and_snapshots_are_told(tmp_path: Path) -> None:
    page = ProgressFile(str(tmp_path / "page"), create=True)
    progress = Progress(tmp_path / "page", global_batch_size=10)
    progress.start(0, 0)
    began = time.monotonic()
    for step in range(1, 5):
        progress.stepped(step, checkpoint_step=0, waited=0.5, now=began + 2.0 * step)
        progress.kept(0.25)
    progress.write()
    told = page.read()
    assert told.exchange_share == pytest.approx(2 / 8, rel=0.1)
    assert told.snapshot_share == pytest.approx(1 / 8, rel=0.1)
    shares = {name: getattr(told, name) for name in ("data_share", "exchange_share", "snapshot_share")}
    (times,) = waits.step_times([RankProgress(0, told.step, step_seconds=told.step_seconds, **shares)]) or ()
    seconds = {"computing": 1.25, "data": 0.0, "exchange": 0.5, "snapshots": 0.25}
    assert {name: getattr(times, name) for name in seconds} == pytest.approx(seconds, rel=0.1)


def test_without_a_page_there_is_nothing_to_write() -> None:
    progress = Progress(None, 1)
    progress.start(0, 0)
    assert math.isnan(progress.samples_per_second)


def make_losses() -> Losses:
    return Losses(alone())


def test_losses_come_out_in_order_and_once() -> None:
    losses = make_losses()
    for step in (1, 2):
        losses.add(step, torch.tensor(step / 10), size=4, seconds=0.1)
    agreement = losses.flush(stop_asked=False)
    assert [entry.step for entry in agreement.losses] == [1, 2]
    assert [entry.loss for entry in agreement.losses] == pytest.approx([0.1, 0.2])
    assert not agreement.stop
    assert losses.flush(stop_asked=True)[:2] == ([], True)


def test_lines_tell_when_steps_ended_even_if_a_later_attempt_writes_them() -> None:
    losses, later = make_losses(), make_losses()
    for step, ended in ((1, 10.0), (2, 10.5)):
        losses.add(step, torch.tensor(0.5), size=4, seconds=0.5, ended=ended)
    later.restore([losses.pending()], range(1, 3))
    for some in (losses, later):
        assert [(entry.step, entry.ended) for entry in some.flush(stop_asked=False).losses] == [(1, 10.0), (2, 10.5)]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_an_error_that_names_its_step(loss: float) -> None:
    with pytest.raises(NonFiniteLossError, match="The loss of step 8 is"):
        check_finite(
            [StepLoss(7, 1.0, 0.1, 4, 0.0), StepLoss(8, loss, 0.1, 4, 0.0), StepLoss(9, math.nan, 0.1, 4, 0.0)]
        )


def test_a_step_in_which_no_rank_sees_a_loss_is_no_error() -> None:
    losses = make_losses()
    losses.add(1, None, size=4, seconds=0.1)
    check_finite(losses.flush(stop_asked=False).losses)


def test_nothing_of_a_step_whose_loss_is_no_number_is_saved(new_job: NewJob) -> None:
    """All ranks hear of it, in the very step whose checkpoint is due."""
    job = new_job(task="small_tasks:Poisoned", arguments={"step": 4})
    running = job.start(2)
    assert running.wait() == [1, 1]
    assert running.output().count("NonFiniteLossError: The loss of step 4 is nan") == 2
    assert not (job.checkpoints() / "step-00000004").exists()
    assert job.manifest(2)["step"] == 2
    assert [line["loss"] for line in job.lines()][-1] is None, "the metrics tell it too"


BREAKING: Options = {"task": "measured_tasks:Breaking", "checkpoint_every": 100}


@pytest.mark.parametrize(
    ("ranks", "arguments"),
    [(1, {}), (2, {}), (2, {"alone": True, "patience": 0.1})],
    ids=["one", "all", "the last one, then the others since it is gone"],
)
def test_the_steps_before_an_error_of_the_task_have_their_lines(
    new_job: NewJob, ranks: int, arguments: Options
) -> None:
    calm = new_job("calm", **BREAKING, steps=8, arguments={"step": 0}).run(ranks)
    broken = new_job("broken", **BREAKING, steps=20, arguments={"step": 9, **arguments})
    assert broken.start(ranks).wait() == [1] * ranks
    lines = [[line for line in job.lines() if "loss" in line] for job in (calm, broken)]
    told = [[(line["step"], line["loss"], line["metrics"]) for line in those] for those in lines]
    assert len(told[0]) == 8
    assert told[0] == told[1]


@pytest.mark.parametrize(("seconds", "steps"), [(10.0, 1), (0.1, 5), (0.000001, losses_module.MOST_STEPS)])
def test_the_interval_follows_the_time_that_steps_take(seconds: float, steps: int) -> None:
    losses = make_losses()
    losses.add(1, torch.tensor(1.0), 4, seconds)
    assert losses.due
    losses.flush(stop_asked=False)
    for step in range(steps):
        assert not losses.due
        losses.add(step, torch.tensor(1.0), 4, seconds)
    assert losses.due


def environment(**changes: str) -> dict[str, str]:
    plan = codec.encode(TrainingPlan("OneDevice")).decode()
    return {names.ENV_TRAINING: plan, names.ENV_CHECKPOINTS: "/c", **changes}


def test_settings_are_those_of_one_rank_unless_told_otherwise() -> None:
    settings = Settings.read(environment(TORCHELASTIC_RESTART_COUNT="2"))
    assert (settings.rank, settings.world_size, settings.attempt, settings.threads) == (0, 1, 3, None)
    assert settings.run_key == "attempt-3-restart-2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "one"}, "RANK must be a whole number, not 'one'"),
        ({names.ENV_TRAINING: "{}"}, "TRAINMASTER_TRAINING is not a training plan: TrainingPlan.strategy: missing"),
    ],
)
def test_wrong_variables_are_named(changes: Options, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Settings.read(environment(**changes))


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="TRAINMASTER_TRAINING is not set"):
        Settings.read({})
