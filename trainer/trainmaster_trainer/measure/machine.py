"""Measure how fast one device of this machine trains a task: a few steps at some batch sizes."""

from __future__ import annotations

import os
import time

import torch
from torch import nn
from torch.optim import Optimizer
from trainmaster.wire.measured import Timing

from trainmaster_trainer.answers import loss_of, make_model, make_optimizer
from trainmaster_trainer.data import Batch, Batches, Share
from trainmaster_trainer.measure.layers import layers_of, slowest_stages
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.task import Task

_SECONDS = 1.0  # of trying, for each batch size
_WARM_UP = 2
_MOST = 50
_FRACTIONS = (1, 2, 4)  # of the global batch: whole, half, a quarter


def count_devices() -> tuple[int, str]:
    """Return how many GPUs there are, or else cores that this process may use, and which of the two it is."""
    if torch.cuda.is_available():
        return torch.cuda.device_count(), "GPU"
    return len(os.sched_getaffinity(0)), "core"


def measure_compute(task: Task, numerics: Numerics, batch_size: int) -> tuple[tuple[Timing, ...], tuple[float, ...]]:
    """Return the seconds of a step on one device (or core) for parts of the global batch, and the shares of stages."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(task).to(device)
    numerics.attach(model, device)
    optimizer = make_optimizer(task, list(model.parameters()))
    sizes = sorted({max(1, batch_size // part) for part in _FRACTIONS})
    timings = tuple(_time(task, model, optimizer, size, device) for size in sizes)
    inputs = Batches(task.dataset(), sizes[0], 1, 0, device).take(1, Share(0, 1)).inputs
    return timings, slowest_stages(layers_of(task, model), inputs)


def _time(task: Task, model: nn.Module, optimizer: Optimizer, size: int, device: torch.device) -> Timing:
    batch = Batches(task.dataset(), size, _MOST, 0, device).take(1, Share(0, 1))
    taken: list[float] = []
    end = time.monotonic() + _SECONDS
    while len(taken) < _WARM_UP + 1 or (time.monotonic() < end and len(taken) < _MOST):
        taken.append(_step(task, model, optimizer, batch, device))
    # The fastest: whatever else runs on this machine only ever adds.
    return Timing(size, min(taken[_WARM_UP:]))


def _step(task: Task, model: nn.Module, optimizer: Optimizer, batch: Batch, device: torch.device) -> float:
    began = time.perf_counter()
    optimizer.zero_grad()
    loss_of(task, model(batch.inputs), batch.targets).value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
