"""Cut a batch into equal micro-batches, even if it does not divide, and make their losses one mean.

Stages exchange tensors of one shape, so all micro-batches of a step are equally long. Where the batch does not divide,
some are a sample short and filled up with a copy of their first sample, whose output is dropped before the loss: it
does not change loss or gradient. Each micro-batch's mean loss is weighed by the number of its real samples, so their
sum is exactly the mean over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.structure import are_texts, each_member, leaves, part_of

Signature = tuple[tuple[tuple[int, ...], torch.dtype], ...]


@dataclass(frozen=True)
class MicroBatch:
    """Hold inputs, some of which may be filling, and the targets of the real samples, which are the first `size`."""

    inputs: Any
    targets: Any
    size: int
    fraction: float  # of the batch's samples


def split(batch: Batch, count: int) -> list[MicroBatch]:
    """Cut a batch of at least `count` samples into `count` micro-batches.

    Raises:
        ConfigurationError: its tensors do not have the sample as their first dimension.
    """
    if count > 1:
        batch.check_can_be_cut()
    else:
        batch.check_has_all()
    bounds = [Share(index, count).bounds(batch.size) for index in range(count)]
    longest = max(end - first for first, end in bounds)
    return [
        MicroBatch(
            inputs=_slice(batch.inputs, first, end, longest),
            targets=_slice(batch.targets, first, end, end - first),
            size=end - first,
            fraction=(end - first) / batch.size,
        )
        for first, end in bounds
    ]


def _slice(value: Any, first: int, end: int, length: int) -> Any:
    """Return samples `first` to `end` of all tensors in a structure, filled up to `length`."""
    part, missing = part_of(value, first, end), length - (end - first)
    return _filled_up(part, missing) if missing else part


def _filled_up(part: Any, missing: int) -> Any:
    if isinstance(part, Tensor):
        return torch.cat([part, part[:1].expand(missing, *part.shape[1:])])
    if are_texts(part):
        return part + part[:1] * missing
    return each_member(part, lambda member: _filled_up(member, missing))


def signature(value: Any) -> Signature:
    """Return the shapes and dtypes that determine the shapes between stages."""
    return tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves(value))
