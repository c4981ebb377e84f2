"""Tasks on a GPU: the same model after kills, in each precision, with data workers, and what a GPU's errors become."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.local.command import BIN, Command, a_job

KILLS = ("--fault", "kill:worker/0@step=13", "--fault", "kill:worker/0@step=27")


def a_gpu_job(steps: int = 40, arguments: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A job of one worker with one GPU; `training` in `spec` is added to the rest."""
    training = {"task": "on_gpu:OnGpu", "steps": steps, "globalBatchSize": 32, "seed": 3}
    training |= {"arguments": arguments or {}, **spec.pop("training", {})}
    checkpoint = {"everySteps": 10, "memoryEverySteps": 1}
    return a_job(**{"training": training, "workers": {"replicas": 1, "gpus": 1}, "checkpoint": checkpoint, **spec})


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"precision": "BF16"},
        {"precision": "FP16", "maxGradientNorm": 1.0},
        {"dataWorkers": 2, "arguments": {"in_memory": False}},
        {"microBatchSize": 8, "ema": {"decay": 0.9}},
    ],
    ids=lambda training: "-".join(training) or "plain",
)
def test_killed_ranks_end_with_the_model_of_a_calm_run(command: Command, calm: Command, training: Any) -> None:
    """Two kills cost no completed step, and the weights are the same to the last bit, dropout on the GPU included."""
    job = a_gpu_job(training=training)
    assert calm.start(job).end() == 0, calm.stderr
    assert command.start(job, *KILLS).end() == 0, command.stderr
    assert [(line["step"], line["stepsLost"]) for line in command.status["restarts"]] == [(13, 0), (27, 0)]
    assert command.status["checkpoint"]["sha256"] == calm.status["checkpoint"]["sha256"]
    audit = subprocess.run([BIN, "audit", str(command.workdir)], capture_output=True, text=True, check=True)
    assert "Steps 1 to 40, each exactly once" in audit.stdout


@pytest.mark.parametrize("strategy", ["OneDevice", "AllReduce", "LocalSGD", "FullySharded"])
def test_strategies_of_one_gpu_train_on_it(command: Command, strategy: str) -> None:
    """What each does with a single rank; the task refuses to compute anywhere else."""
    assert command.start(a_gpu_job(strategy={"type": strategy})).end() == 0, command.status


def test_a_parameter_server_serves_a_worker_with_a_gpu(command: Command) -> None:
    """The server has none."""
    strategy = {"type": "ParameterServer"}
    assert command.start(a_gpu_job(strategy=strategy, parameterServers={"replicas": 1})).end() == 0, command.stderr


def test_the_trained_model_is_loaded_where_there_is_no_gpu(command: Command, folder: Path) -> None:
    """It evaluates as it did on the GPU, in plain torch on the CPU."""
    assert command.start(a_gpu_job(200)).end() == 0, command.stderr
    target = folder / "model.safetensors"
    subprocess.run([BIN, "export", str(command.workdir), "-o", str(target)], check=True)
    weights = load_file(target)
    assert all(one.device.type == "cpu" for one in weights.values())
    metrics = [
        json.loads(line) for line in (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    ]
    (told,) = [line["evaluation"]["error"] for line in metrics if "evaluation" in line]
    layers = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1)).eval()
    layers.load_state_dict(weights)
    points = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        error = float((layers(points) - points.sum(dim=1, keepdim=True)).square().mean())
    assert error == pytest.approx(told, rel=1e-2)


def test_a_compiled_model_trains_and_resumes(command: Command) -> None:
    """Triton's kernels on the GPU; the next attempt compiles again."""
    job = a_gpu_job(training={"compile": True})
    assert command.start(job, *KILLS[:2]).end() == 0, command.stderr
    assert [line["stepsLost"] for line in command.status["restarts"]] == [0]


@pytest.mark.parametrize(
    ("ill", "class_", "words"),
    [("memory", "DeviceOutOfMemory", "CUDA out of memory"), ("index", "PythonError", "device-side assert")],
)
def test_errors_of_the_gpu_have_their_class(command: Command, ill: str, class_: str, words: str) -> None:
    """A full memory is the size of the job's; an index out of range is the program's, not a broken device's."""
    from_the_start = {"everySteps": 10, "memoryEverySteps": 0}  # the task counts the steps of its process
    job = a_gpu_job(arguments={"raise_at": 5, "ill": ill}, checkpoint=from_the_start)
    assert command.start(job).end() == 1
    line = command.status["restarts"][0]
    assert line["class"] == class_, line
    assert words in line["evidence"], line


def test_more_ranks_than_gpus_train_on_the_cpu_and_are_told(command: Command) -> None:
    """The task finds itself on the CPU, which it was not made for; the first line on stderr says why."""
    count = torch.cuda.device_count() + 1
    command.start(a_gpu_job(workers={"replicas": 1, "gpus": count}))
    assert command.end() == 1
    assert f"spec.workers.gpus: the job asks for {count} GPUs and this machine has {count - 1}" in command.stderr
    assert "the model is on the CPU" in command.status["restarts"][0]["evidence"]
