"""Checkpoints of 256 MiB beside torch's DCP, and what a snapshot in memory at every step costs.

The stall is what a training step loses: the call that saves, and what the next optimizer step then waits. Each round
takes every contestant once, between the same training steps. Durable means the same for both: DCP syncs its files too
(`sync_files=True`, its default), though not their folder; ours are hashed on the way.
"""

import contextlib
import io
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_saver
from torch.optim.optimizer import register_optimizer_step_pre_hook
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.batch_losses import COLUMNS, MOST_STEPS
from trainmaster_trainer.checkpoint.memory import Memory
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.data import Batch
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies.one_device import OneDevice
from trainmaster_trainer.task import Task

from bench import results
from tests.trainer.ranks import alone

TENSORS, MIB = 64, 256
ROUNDS = 5
STEPS = 40


class Training:
    """A model of 256 MiB whose forward and backward pass take a third of a second."""

    def __init__(self) -> None:
        self.weights = {f"model/{n}": nn.Parameter(torch.randn(MIB // TENSORS << 8, 1024)) for n in range(TENSORS)}
        self.optimizer = torch.optim.SGD(self.weights.values(), lr=1e-6)
        for weight in self.weights.values():
            weight.grad = torch.ones_like(weight)

    def state(self) -> dict[str, Tensor]:
        """Live tensors."""
        return {name: weight.detach() for name, weight in self.weights.items()}

    def compute(self) -> None:
        """As long as a forward and backward pass, and as gentle to the memory bus."""
        matrix = torch.randn(512, 512)
        ends = time.perf_counter() + 0.35
        while time.perf_counter() < ends:
            matrix = torch.tanh(matrix @ matrix / 512)


class Waits:
    """How long optimizer steps wait for the saver's copies: the time between two hooks, with the saver's own between.

    torch calls the hooks of all optimizers in the order in which they were registered.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self.seconds = 0.0  # of the last step

    def before_saver(self) -> None:
        """Called before the saver is made."""
        register_optimizer_step_pre_hook(self._begin)

    def after_saver(self) -> None:
        """Called when the saver is made."""
        register_optimizer_step_pre_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self._began = time.perf_counter()

    def _end(self, *_: Any) -> None:
        self.seconds = time.perf_counter() - self._began


def main() -> str:
    """Measure; the line for people."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        figures = _saves(Path(name))
    figures |= _snapshots()
    results.save("checkpoint", figures)
    return (
        f"checkpoint: stall {figures['stall_of_dcp_async']:.2f} of DCP's async_save, durable save "
        f"{figures['times_dcp_save']:.1f}x dcp.save, memory {100 * figures['snapshot_share']:.1f} % of a step "
        f"(every {figures['snapshot_every']:.0f})"
    )


def _saves(folder: Path) -> dict[str, Any]:
    training, waits = Training(), Waits()
    plan = TrainingPlan("OneDevice", steps=10**6, global_batch_size=4, checkpoint_keep=99)  # DCP deletes nothing either
    waits.before_saver()
    saver = Saver(Settings(plan, folder / "ours", job_uid="bench"), alone())
    waits.after_saver()
    saver.prepare()
    stalls: dict[str, list[float]] = {"ours": [], "dcp": [], "memcpy": []}
    durable: dict[str, list[float]] = {"ours": [], "dcp": []}
    spare = [torch.empty_like(weight) for weight in training.state().values()]
    for number in range(1, ROUNDS + 2):
        row = {
            "ours": _ours(training, saver, waits, number),
            "dcp": _theirs(training, folder / "dcp"),
            "memcpy": (_timed(lambda: torch._foreach_copy_(spare, list(training.state().values()))), 0.0),
        }
        if number > 1:  # the first round makes the buffers
            for name, (stall, whole) in row.items():
                stalls[name].append(stall)
                if whole:
                    durable[name].append(whole)
    ratios = [ours / dcp for ours, dcp in zip(stalls["ours"], stalls["dcp"], strict=True)]
    speeds = [dcp / ours for ours, dcp in zip(durable["ours"], durable["dcp"], strict=True)]
    return {
        "stall_seconds": stalls,
        "durable_seconds": durable,
        "stall_of_dcp_async": results.median(ratios),
        "stall_worst": max(ratios),
        "times_dcp_save": results.median(speeds),
        "times_dcp_save_worst": min(speeds),
    }


def _ours(training: Training, saver: Saver, waits: Waits, step: int) -> tuple[float, float]:
    stall = _timed(lambda: saver.save(step, State(training.state()), lambda: None, settled=lambda _: True))
    training.compute()
    training.optimizer.step()
    stall += waits.seconds
    saver.wait()
    began = time.perf_counter()
    saver.save(step + 1000, State(training.state()), lambda: None, settled=lambda _: True)
    saver.wait()
    whole = time.perf_counter() - began
    return stall, whole


def _theirs(training: Training, folder: Path) -> tuple[float, float]:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.redirect_stderr(io.StringIO()):
        began = time.perf_counter()
        future = state_dict_saver.async_save(training.state(), checkpoint_id=folder / "async")
        stall = time.perf_counter() - began
        training.compute()
        training.optimizer.step()
        future.result()  # type: ignore[union-attr]
        whole = _timed(lambda: state_dict_saver.save(training.state(), checkpoint_id=folder / "sync"))
    return stall, whole


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Wide(Task):
    """A perceptron that keeps one core busy."""

    def model(self) -> nn.Module:
        """4 M parameters, 48 MiB with Adam's moments."""
        return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))

    def dataset(self) -> tuple[Tensor, Tensor]:
        """Nothing to learn."""
        return torch.randn(512, 1024), torch.randn(512, 1024)

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Squares."""
        return nn.functional.mse_loss(outputs, targets)

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """With two moments for each weight."""
        return torch.optim.Adam(parameters)


def _kept(memory: Memory, step: int, pending: Tensor) -> float:
    if not memory.due(step):
        return 0.0
    memory.keep(step, pending)
    return memory.seconds


def _snapshots() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        plan = TrainingPlan("OneDevice", steps=10**6, global_batch_size=512)
        settings = Settings(plan, Path(name), job_uid="bench", memory=Path(name))
        strategy = OneDevice(Wide(), alone(), {})
        memory = Memory(settings, alone(), strategy)
        inputs, targets = Wide().dataset()
        batch = Batch(inputs, targets, len(inputs), len(inputs), 0.0)
        pending = torch.zeros(MOST_STEPS, COLUMNS, dtype=torch.float64)
        steps, spent = [], []
        for step in range(1, STEPS + 1):
            began = time.perf_counter()
            strategy.update(batch)
            trained = time.perf_counter() - began
            kept = _kept(memory, step, pending)
            memory.adapt(trained + kept, memory.seconds)
            if step > STEPS // 2:
                steps.append(trained)
                spent.append(kept)
    return {
        "snapshot_share": sum(spent) / sum(steps),
        "snapshot_every": memory.every,
        "snapshot_seconds": memory.seconds,
        "step_seconds": results.median(steps),
    }
