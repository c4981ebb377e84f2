"""What counts as a step of a script that knows nothing of Trainmaster: real optimizers, and a real page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from trainmaster.wire import codec, names
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer import script_progress
from trainmaster_trainer.agent import awaited_torch, optimizer_steps

Hooks = "torch.optim.optimizer"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ProgressPage]]:
    """Count here as in a rank of a script; what the page says then."""
    registered = sys.modules[Hooks]._global_optimizer_post_hooks
    before = dict(registered)
    path = tmp_path / "page"
    monkeypatch.setattr(script_progress, "_opened_by", 0)
    monkeypatch.setattr(awaited_torch, "_registered", False)
    file = ProgressFile(str(path), create=True, attempt=1)
    for name, value in environment(path).items():
        monkeypatch.setenv(name, value)
    optimizer_steps.count()
    yield file.read
    registered.clear()
    registered.update(before)
    monkeypatch.setattr(script_progress, "_opened_by", 0)


def environment(path: Path, attempt: int = 1) -> dict[str, str]:
    plan = TrainingPlan("AllReduce", command=("python", "train.py"), global_batch_size=8)
    return {
        names.ENV_PROGRESS_FILE: str(path),
        names.ENV_ATTEMPT: str(attempt),
        names.ENV_CHECKPOINTS: str(path.parent),
        names.ENV_TRAINING: codec.encode(plan).decode(),
        "RANK": "0",
    }


def a_model() -> nn.Module:
    return nn.Linear(4, 1)


def backward(model: nn.Module, scale: float = 1.0) -> None:
    (model(torch.ones(2, 4)).sum() * scale).backward()


def accumulating() -> int:
    model = a_model()
    optimizer = torch.optim.Adam(model.parameters())
    for micro in range(12):
        backward(model)
        if micro % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return 3


def skipping() -> int:
    """A GradScaler that finds an infinite gradient calls no optimizer."""
    model = a_model()
    optimizer, scaler = torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cpu")
    for scale in (1.0, float("inf"), 1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 4)).sum() * scale).backward()
        scaler.step(optimizer)
        scaler.update()
    return 3


def side_by_side() -> int:
    """A GAN's two, or Muon beside AdamW."""
    models = [a_model(), a_model()]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for _ in range(5):
        for model, optimizer in zip(models, optimizers, strict=True):
            backward(model)
            optimizer.step()
    return 5


def a_critic_more_often() -> int:
    models = [a_model(), a_model()]
    critic, generator = (torch.optim.SGD(model.parameters()) for model in models)
    for step in range(10):
        backward(models[0])
        critic.step()
        if step % 5 == 4:
            backward(models[1])
            generator.step()
    return 10


def one_for_each_parameter() -> int:
    model = nn.Sequential(a_model(), nn.Linear(1, 1))
    optimizers = [torch.optim.SGD([parameter]) for parameter in model.parameters()]
    for _ in range(4):
        backward(model)
        for optimizer in optimizers:
            optimizer.step()
    return 4


def one_after_the_other() -> int:
    """The first is used no more: the count does not stand still."""
    model = a_model()
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(3):
            backward(model)
            optimizer.step()
    return 5  # that of the second's first step ends with it


LOOPS = (accumulating, skipping, side_by_side, a_critic_more_often, one_for_each_parameter, one_after_the_other)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_steps_are_counted_once(page: Callable[..., ProgressPage], loop: Callable[[], int]) -> None:
    steps = loop()
    told = page()
    assert (told.step, told.phase, told.resumed_step) == (steps, "train", 0)
    assert told.samples_per_second > 0


def test_a_new_optimizer_that_goes_on_alone_is_another_phase(page: Callable[..., ProgressPage]) -> None:
    """After a restart the first phase may have nothing left to do. Optimizers that step side by side are one phase."""
    side_by_side()
    assert page().earlier_steps == 0
    model = a_model()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        backward(model)
        optimizer.step()
    assert (page().step, page().earlier_steps) == (7, 5)


def have_a_hundred_steps(optimizer: torch.optim.Optimizer) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        zeros = torch.zeros_like(parameter)
        optimizer.state[parameter] = {"step": torch.tensor(100.0), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}


@pytest.mark.parametrize("by_torch", [False, True], ids=["load_state_dict", "torch's checkpoints"])
@pytest.mark.parametrize(
    ("kind", "told"), [(torch.optim.AdamW, (102, 100)), (torch.optim.SGD, (2, -1))], ids=["AdamW", "SGD"]
)
def test_after_a_restart_the_optimizer_s_own_count_tells_where_it_goes_on(
    page: Callable[..., ProgressPage],
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[..., torch.optim.Optimizer],
    told: tuple[int, int],
    by_torch: bool,
) -> None:
    """One that keeps none says nothing, and nothing is guessed.

    Checkpoints in the manner of torchtitan call step() to have a state, at a load and of SGD at each save: it is none.
    """
    monkeypatch.setenv(names.ENV_ATTEMPT, "2")
    (model, optimizer), (saved, of_saved) = ((one, kind(one.parameters(), lr=0.1)) for one in (a_model(), a_model()))
    if kind is torch.optim.AdamW:
        have_a_hundred_steps(of_saved)
    if by_torch:
        weights, moments = get_state_dict(saved, of_saved)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    else:
        optimizer.load_state_dict(of_saved.state_dict())
    for _ in range(2):
        backward(model)
        optimizer.step()
        if by_torch:
            optimizer.zero_grad()
            get_state_dict(model, optimizer)
    assert (page().step, page().resumed_step) == told


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("case", [(2, False, 1), (2, True, 0), (1, False, 0)])
def test_ranks_that_train_a_model_each_are_told(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[int, bool, int],
) -> None:
    """They would end as if all had gone well."""
    ranks, together, times = case
    monkeypatch.setenv(names.ENV_PLACE, f"0/{ranks}")
    if together:
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(3):
        backward(model)
        optimizer.step()
    if together:
        torch.distributed.destroy_process_group()
    told = capfd.readouterr().err
    assert told.count("each of the 2 ranks trains a model of its own") == times
    assert told.count("spec.workers.replicas") == times


FRESH = """
import sys
from trainmaster_trainer.agent import optimizer_steps
before = [*sys.meta_path]
optimizer_steps.count()
assert "torch" not in sys.modules, "it is not made to import torch"
import json, csv
assert len(sys.meta_path) == len(before) + 1
import torch
assert sys.meta_path == before, "the finder takes itself away"
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def test_a_new_interpreter_counts_as_soon_as_the_script_imports_torch(tmp_path: Path) -> None:
    path = tmp_path / "page"
    file = ProgressFile(str(path), create=True, attempt=1)
    subprocess.run([sys.executable, "-c", FRESH], env={**environment(path), "PATH": ""}, check=True)
    assert file.read().step == 3
