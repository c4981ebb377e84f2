"""AllReduce with `accelerator: tpu`, on XLA's CPU devices: no TPU was at hand.

Runs in `.venv-xla` (make setup-xla), which has torch_xla and a torch of its own: whole jobs, by `trainmaster run`.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainmaster.api.generate import ROOT
from trainmaster.wire import names

from tests.local.command import BIN, start_warm_parent

XLA_BIN = ROOT / ".venv-xla" / "bin" / "trainmaster"
WARM: dict[Path, Path] = {}
"""The socket of the process to fork from, by command."""
TOLERANCE = 1e-5
STEPS = 8


def a_job(workers: dict[str, Any], strategy: str = "AllReduce", steps: int = STEPS) -> dict[str, Any]:
    # 50 divides neither by the devices of one worker nor by those of both.
    task = "trainmaster_trainer.tasks.digits:Digits"
    training = {"task": task, "arguments": {"hidden": 32}, "steps": steps, "globalBatchSize": 50}
    return {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits"},
        "spec": {"strategy": {"type": strategy}, "training": training, "workers": workers},
    }


def on_xla(replicas: int, chips: int) -> dict[str, Any]:
    """Workers whose XLA devices are parts of the CPU."""
    env = [{"name": "PJRT_DEVICE", "value": "CPU"}, {"name": "CPU_NUM_DEVICES", "value": str(chips)}]
    return {"replicas": replicas, "gpus": chips, "accelerator": "tpu", "env": env}


def run(job: dict[str, Any], folder: Path, command: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    folder.mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(json.dumps(job))
    return subprocess.run(
        [command, "run", folder / "job.yaml", "--workdir", folder / "run", "--output", "json", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, names.ENV_WARM_SOCKET: str(WARM[command])},
    )


def losses(folder: Path) -> list[float]:
    (path,) = (folder / "run").rglob("metrics.jsonl")
    return [line["loss"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line]


@pytest.fixture(scope="module", autouse=True)
def warm_parents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start a process to fork from in each environment, as importing torch and torch_xla takes 10 s of processor."""
    folder, parents = tmp_path_factory.mktemp("warm"), []
    for command in (BIN, XLA_BIN):
        WARM[command] = folder / command.parts[-3]
        parents.append(start_warm_parent(command.with_name("python"), WARM[command]))
    yield
    for parent in parents:
        parent.terminate()
        parent.wait()


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("one")
    assert run(a_job({"replicas": 1}, "OneDevice"), folder, BIN).returncode == 0
    return losses(folder)


@pytest.mark.parametrize(("replicas", "chips"), [(1, 4), (2, 2)])
def test_losses_are_those_of_one_device(tmp_path: Path, one_device: list[float], replicas: int, chips: int) -> None:
    done = run(a_job(on_xla(replicas, chips)), tmp_path, XLA_BIN)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path) == pytest.approx(one_device, rel=TOLERANCE)


def test_precision_and_norm_are_those_of_one_device(tmp_path: Path) -> None:
    numerics = {"precision": "BF16", "maxGradientNorm": 0.05}
    found = []
    for name, job, command in (
        ("one", a_job({"replicas": 1}, "OneDevice"), BIN),
        ("xla", a_job(on_xla(1, 2)), XLA_BIN),
    ):
        job["spec"]["training"].update(numerics)
        done = run(job, tmp_path / name, command)
        assert done.returncode == 0, done.stderr
        found.append(losses(tmp_path / name))
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_a_checkpoint_goes_from_xla_to_one_device(tmp_path: Path, one_device: list[float]) -> None:
    assert run(a_job(on_xla(1, 2), steps=STEPS // 2), tmp_path, XLA_BIN).returncode == 0
    done = run(a_job({"replicas": 1}, "OneDevice"), tmp_path, BIN)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path) == pytest.approx(one_device, rel=TOLERANCE)


def of_a_test(job: dict[str, Any], task: str, steps: int = STEPS) -> dict[str, Any]:
    """The same job with a small task of the trainer's tests."""
    folder = ROOT / "tests" / "trainer"
    job["spec"]["training"].update(task=task, arguments={}, steps=steps, workingDirectory=str(folder))
    return job


def test_replicas_that_use_different_parameters_add_up_each_ones_own(tmp_path: Path) -> None:
    """Of two experts, which are alike, a replica's batch goes to one."""
    found = []
    for name, workers, command in (("cpu", {"replicas": 2}, BIN), ("xla", on_xla(2, 1), XLA_BIN)):
        done = run(of_a_test(a_job(workers), "odd_tasks:WithRoutes"), tmp_path / name, command)
        assert done.returncode == 0, done.stderr
        found.append(losses(tmp_path / name))
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_buffers_are_those_of_the_first_replica_as_after_a_restart(tmp_path: Path) -> None:
    for folder, steps in (("whole", STEPS), ("parts", STEPS // 2), ("parts", STEPS)):
        done = run(of_a_test(a_job(on_xla(2, 1)), "late_tasks:WithMean", steps), tmp_path / folder, XLA_BIN)
        assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=TOLERANCE)


def test_without_torch_xla_the_field_and_the_cure_are_named(tmp_path: Path) -> None:
    done = run(a_job(on_xla(1, 1)), tmp_path, BIN)
    assert done.returncode == 1
    message = json.loads(done.stdout.splitlines()[-1])["message"]
    assert "spec.workers.accelerator: tpu needs torch_xla" in message


def test_a_rank_that_stood_by_has_left_the_devices_alone(tmp_path: Path) -> None:
    """The autograd engine counts the devices at a process's first backward pass, once."""
    text = """
import torch, torch.distributed
from trainmaster_trainer.agent.rehearsal import rehearse
rehearse()
import torch_xla
leaf = torch.ones(2, device=torch_xla.device(), requires_grad=True)
leaf.sum().backward()
"""
    environment = {**os.environ, "PJRT_DEVICE": "CPU"}
    python = XLA_BIN.with_name("python")
    subprocess.run([python, "-c", text], check=True, env=environment, cwd=tmp_path, timeout=500)


def test_what_is_drawn_on_the_devices_follows_from_the_step(tmp_path: Path) -> None:
    hashes = set()
    for name, options in (("calm", ()), ("killed", ("--fault", "kill:worker/0@step=6"))):
        job = a_job(on_xla(1, 2), steps=STEPS)
        job["spec"]["training"]["arguments"]["dropout"] = 0.2
        job["spec"]["checkpoint"] = {"everySteps": 4}
        done = run(job, tmp_path / name, XLA_BIN, *options)
        assert done.returncode == 0, done.stderr
        status = json.loads((tmp_path / name / "run" / "status.json").read_text())
        assert status.get("restartCount", 0) == len(options) // 2
        hashes.add(status["checkpoint"]["sha256"])
    assert len(hashes) == 1
