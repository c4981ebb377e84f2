"""Compute the loss of a share of a global batch, and tell once where the loss is no mean over samples.

The gradients of shares and micro-batches are weighed by their samples, which gives the gradient of the global batch
where a loss is a mean over samples. A mean over tokens that count, or a loss that compares the samples of a batch, is
none: its gradients depend on the number of ranks. That shows in the losses of the two halves of a share.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
from typing import Any

import torch

from trainmaster_trainer.answers import loss_of
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import Batch
from trainmaster_trainer.randomness import Generators
from trainmaster_trainer.structure import leaves, part_of
from trainmaster_trainer.task import Task

log = logging.getLogger(__name__)

_TOLERANCE = 1e-4  # relative: rounding in FP32 comes to a hundredth of it


def loss_of_batch(task: Task, outputs: Any, batch: Batch, *, counts: bool) -> Loss:
    """Return the loss of a batch, a share or a part of one, see `answers.loss_of`.

    The first step of a training also looks whether the loss is a mean over samples, where it may be a pair: `counts`.
    """
    loss = loss_of(task, outputs, batch.targets)
    is_first = batch.step == 1 and batch.place == 0  # of several micro-batches one tells enough
    is_judged = counts and is_first and batch.size < batch.global_size and loss.count is None
    if is_judged and not _is_mean(task, outputs, batch, float(loss.value.detach())):
        _tell(type(task).__name__)
    return loss


def _is_mean(task: Task, outputs: Any, batch: Batch, whole: float) -> bool:
    """Return False where the losses of the two halves surely do not have `whole` as their mean, weighed by samples."""
    middle = batch.size // 2
    tensors = [*leaves(outputs), *leaves(batch.targets)]
    if not middle or any(type(one) is not torch.Tensor or one.dim() == 0 or len(one) != batch.size for one in tensors):
        return True  # nothing could be cut
    before, total = Generators.now(), 0.0
    try:
        asked = copy.copy(task)  # what a task counts of its calls must not change; its data is not copied
        with torch.no_grad():
            for first, end in ((0, middle), (middle, batch.size)):
                half: Any = asked.loss(part_of(outputs, first, end), part_of(batch.targets, first, end))
                total += float(half) * (end - first) / batch.size
    except Exception:  # noqa: BLE001 a loss that only knows whole shares: nothing can be said of it
        return True
    finally:
        draws = not Generators.now().is_equal(before)
        before.put_back()
    is_close = math.isclose(total, whole, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return is_close or draws or not math.isfinite(whole + total)


@functools.cache  # once in a process
def _tell(name: str) -> None:
    log.warning(
        "loss() of %s is no mean over samples: for the halves of a batch it comes to another one than for the whole. "
        "So gradients depend on the number of ranks and on microBatchSize. Return a pair of the sum and how many "
        "things were added up, such as tokens that count; ignore this where a loss compares samples with one another.",
        name,
    )
