"""Open the samples of a task for a rank: its batches, made in the rank itself or ahead of the step in data workers."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from trainmaster.wire import data_worker_defaults
from trainmaster.wire.strategies import INDEPENDENT
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer import randomness
from trainmaster_trainer.data import Batches
from trainmaster_trainer.data_workers import Ahead, sockets
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.making import Collate
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.task import Task

log = logging.getLogger(__name__)
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def open_batches(settings: Settings, task: Task, device: torch.device) -> Batches:
    """Make the batches. The samples may be drawn: alike on all ranks, whatever was drawn before."""
    plan = settings.plan
    randomness.seed_alike(plan.seed)
    before = sockets()
    dataset = task.dataset()
    batches = Batches(dataset, plan.global_batch_size, plan.steps, plan.seed, device, own=own_collate(task))
    if batches.is_stream:
        _check_stream(plan, dataset, batches.count)
    if plan.epochs is not None:
        batches.hold_to_length()
    batches.steps = settings.for_samples(batches.count).plan.steps
    count = _workers(settings, batches)
    if count:
        log.info("%d data worker%s of this rank make%s batches ahead.", count, *(("s", "") if count > 1 else ("", "s")))
        # Members that come and go may take more steps than the plan has, each with a smaller share.
        last = None if plan.strategy in INDEPENDENT else batches.steps
        # A folder for sockets that is gone after the attempt; none where no agent is there to delete it.
        folder = settings.progress_file.parent if settings.progress_file else None
        batches.read_ahead(Ahead(count, plan.prefetch, folder), last, sockets() - before)
    return batches


def _check_stream(plan: TrainingPlan, dataset: Any, count: int) -> None:
    """Refuse a stream where it cannot be used. `count`: of its samples, as far as it says that.

    Raises:
        ConfigurationError: names the field and the cure.
    """
    if plan.strategy in INDEPENDENT:
        raise ConfigurationError(
            f"spec.strategy.type: {plan.strategy} gives each worker samples by number, at its own pace, and the task's "
            "dataset() is a stream, which can only be iterated. Choose another strategy, such as AllReduce, or give a "
            "map-style Dataset (with __len__ and __getitem__)."
        )
    if plan.epochs is not None and not count:
        told = "whose __len__ gives 0" if hasattr(dataset, "__len__") else "without __len__"
        raise ConfigurationError(
            f"spec.training.epochs: the task's dataset() is a stream {told}, so nobody knows how many steps an epoch "
            "takes. Set spec.training.steps instead, or let its __len__ return how many samples it gives."
        )


def own_collate(task: Task) -> Collate | None:
    """Return the task's own way to make a batch of samples; None where it is torch's."""
    return task.collate if type(task).collate is not Task.collate else None


def _workers(settings: Settings, batches: Batches) -> int:
    asked = settings.plan.data_workers
    if asked is not None:
        return asked
    if batches.are_in_memory:
        return 0
    count = data_worker_defaults.by_cores(settings.cores or _allowed_cores(), settings.local_world_size)
    return min(count, 1) if batches.is_stream else count  # each of several would read all of the stream


def _allowed_cores() -> int:
    """Return how many cores the kernel gives this process: by its affinity, and by the quota of its container."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # another version of cgroups, or "max"
        return cores
