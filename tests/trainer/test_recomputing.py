"""What is asked of a model beside its numerics: recomputed activations, a compiled model, an average of its weights."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from trainmaster.cli.main import main
from trainmaster_trainer import export_model
from trainmaster_trainer.checkpoint.averages import EMA, Average
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.recomputing import recompute_layers
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override

from tests.trainer.ranks import Forker, Job, NewJob, Options

DRAWING: Options = {
    "task": "drawing_tasks:Drawing",
    "arguments": {"seconds": 0.05},
    "steps": 6,
    "checkpoint_every": 2,
}


class Counting(nn.Linear):
    """Counts its forward passes."""

    passes = 0

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return super().forward(input)


def test_layers_compute_once_more_and_come_to_the_same() -> None:
    gradients = []
    for recomputed in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(Counting(3, 4), nn.Sequential(Counting(4, 4), nn.Dropout(0.5)), Counting(4, 1))
        if recomputed:
            recompute_layers(Digits(), model)
        model(torch.ones(5, 3)).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        passes = [one.passes for one in model.modules() if isinstance(one, Counting)]
        assert passes == [2, 2, 2] if recomputed else [1, 1, 1]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_running_means_are_not_moved_twice() -> None:
    means = nn.BatchNorm1d(4)
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4), means), nn.Linear(4, 1))
    recompute_layers(Digits(), model)
    model(torch.rand(5, 3)).sum().backward()
    assert int(means.num_batches_tracked or 0) == 1
    with pytest.raises(ConfigurationError, match="all of them have running means"):
        recompute_layers(Digits(), nn.Sequential(nn.BatchNorm1d(4)))


def test_a_task_that_names_no_layers_is_told_to() -> None:
    with pytest.raises(ConfigurationError, match=r"activationCheckpointing: .* Write model_layers"):
        recompute_layers(Digits(), nn.Linear(3, 1))


@pytest.mark.parametrize("strategy", ["AllReduce", "FullySharded"])
def test_recomputed_activations_give_the_same_losses_with_an_average_beside(new_job: NewJob, strategy: str) -> None:
    """And the average is the same after a restart."""
    plain = new_job("plain", **DRAWING, strategy=strategy).run(2)
    job = new_job("recomputed", **DRAWING, strategy=strategy, recompute=True, ema=0.5)
    killed(job)
    assert job.losses() == plain.losses()
    whole = new_job("whole", **DRAWING, strategy=strategy, ema=0.5).run(2)
    expected, found = (averages(one) for one in (whole, job))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], one) for name, one in expected.items())


def killed(job: Job, ranks: int = 2) -> Job:
    """It was killed after its third step, and has gone on."""
    running = job.start(ranks, ranks_per_pod=ranks)
    running.reach(3)
    running.kill()
    return job.run(ranks, attempt=2, ranks_per_pod=ranks)


def averages(job: Job) -> dict[str, torch.Tensor]:
    """What export writes of the average, which is not the weights."""
    files = [job.folder / "weights.safetensors", job.folder / "average.safetensors"]
    for file, options in zip(files, ([], ["--ema"]), strict=True):
        assert export_model.main([str(job.checkpoints()), "--output", str(file), *options]) == 0
    weights, average = map(load_file, files)
    assert weights.keys() == average.keys()
    assert not any(torch.equal(one, average[name]) for name, one in weights.items())
    return average


def test_the_average_follows_the_weights() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    average, expected = Average(optimizer, {parameter: "a"}, 0.75), 0.0
    for _ in range(3):
        parameter.grad = torch.full((1,), -1.0)
        optimizer.step()
        expected = 0.75 * expected + 0.25 * float(parameter.detach())
        assert average.tensors()[f"{EMA}a"].tolist() == [pytest.approx(expected)]


def test_a_checkpoint_without_an_average_is_told_so(new_job: NewJob, capfd: pytest.CaptureFixture[str]) -> None:
    job = new_job(**DRAWING).run(1)
    assert main(["export", str(job.folder), "-o", str(job.folder / "file"), "--ema"]) == 1
    assert "Set spec.training.ema for the next run" in capfd.readouterr().err


@pytest.fixture(scope="module")
def compiled(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch has compiled: the strategies have the same model and batches.

    And the compiler is imported once for all ranks, each of which would take two seconds for it.
    """
    forker.ask(imports=["torch._inductor.compile_fx"])
    return tmp_path_factory.mktemp("compiled")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on CPUs")
@pytest.mark.parametrize(("strategy", "ranks"), [("LocalSGD", 2), ("Mirrored", 2)])
def test_a_compiled_model_trains_and_resumes_to_the_same_bits(
    new_job: NewJob, compiled: Path, strategy: str, ranks: int
) -> None:
    """Two ranks of LocalSGD go on between two meetings, each with its own model."""
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(compiled)}
    plan: Options = {**DRAWING, "compile": True, "variables": variables, "strategy": strategy}
    whole = new_job("whole", **plan).run(ranks, ranks_per_pod=ranks)
    job = killed(new_job("parts", **plan), ranks)
    assert job.losses() == whole.losses()
    assert job.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]
    assert any(compiled.rglob("*.so")), "something was compiled"
