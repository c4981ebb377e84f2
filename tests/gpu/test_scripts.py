"""Scripts on a GPU, over NCCL: as under torchrun, steps counted, and their state kept through kills."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.local.command import Command, a_job


def a_gpu_script(*arguments: str, script: str = "ddp.py") -> dict[str, Any]:
    """A job of one worker with one GPU that runs one of scripts/."""
    training = {"command": ["python", script, *arguments]}
    checkpoint = {"everySteps": 10, "memoryEverySteps": 1} if "--keep" in arguments else {}
    return a_job(training=training, workers={"replicas": 1, "gpus": 1}, checkpoint=checkpoint)


def torchrun(folder: Path, script: str = "ddp.py") -> dict[str, torch.Tensor]:
    """The model of the same script under torchrun."""
    plain = folder / "plain"
    plain.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "--standalone"]
    subprocess.run([*command, str(folder / script)], cwd=plain, check=True)
    model: dict[str, torch.Tensor] = torch.load(plain / "model.pt")
    return model


def test_an_unchanged_script_has_the_model_of_torchrun_and_its_steps_are_counted(
    command: Command, folder: Path
) -> None:
    """Steps that the loss scale skips are not counted; the scale of 65,536 overflows once or never here."""
    assert command.start(a_gpu_script()).end() == 0, command.stderr
    ours, theirs = torch.load(folder / "model.pt"), torchrun(folder)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert 30 <= command.status["progress"]["step"] <= 40


@pytest.mark.parametrize("script", ["ddp.py", "fsdp2.py"])
def test_a_kept_state_survives_kills_with_the_same_bits(command: Command, folder: Path, script: str) -> None:
    """Weights, AdamW's moments, the loss scale and the GPU's generator: no completed step is lost."""
    faults = ["--fault", "kill:worker/0@step=13", "--fault", "kill:worker/0@step=27"]
    assert command.start(a_gpu_script("--keep", script=script), *faults).end() == 0, command.stderr
    assert [(line["step"], line["stepsLost"]) for line in command.status["restarts"]] == [(13, 0), (27, 0)]
    ours, theirs = torch.load(folder / "model.pt"), torchrun(folder, script)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed here")
def test_jax_joins_without_arguments_on_its_gpu(command: Command) -> None:
    """The frameworks' door leads to the same devices."""
    training = {"framework": "JAX", "command": ["python", "sum_jax.py"]}
    job = a_job(training=training, workers={"replicas": 1, "gpus": 1}, checkpoint={})
    assert command.start(job).end() == 0, command.stderr
    logs = "".join(path.read_text() for path in (command.workdir / "logs").glob("*"))
    assert "sum over devices 1000.0 1" in logs
