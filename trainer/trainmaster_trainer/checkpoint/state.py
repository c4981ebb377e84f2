"""A state is named tensors and JSON, under names that hold for any world size and strategy.

model/<name>                     parameters and buffers, as in the model's state_dict
optimizer/<parameter>/<key>      an optimizer's tensors, by the parameter's name instead of its number
optimizer/<parameter>/json:<key> its numbers and words, as JSON in bytes, where ranks hold different parameters
ema/<parameter>                  the moving average of a parameter
scalars["optimizer"]             all else that the optimizer keeps
scalars["loss_scale"]            what FP16 multiplies losses by
scalars["schedule"]              how far the task's scheduler is
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from trainmaster.wire.manifest import MODEL

from trainmaster_trainer.checkpoint.soundness import Allowed

__all__ = ["MODEL"]
OPTIMIZER = "optimizer/"
ANOTHER_FOLDER = "another job, --workdir or storage.path, without resumeFrom"
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape


@dataclass
class State:
    """State is what must outlive the process. `scalars` is JSON, the same on all ranks.

    Where ranks split a model, on all of them or on none, `whole` says what the model is that they make together.
    `forms` says it where a rank names only a part of the model's tensors, though none is split.
    `own` names the tensors that no other rank has, such as what a compression left out here; it is None on all ranks of
    a strategy that has none. `allowed` says which tensors may hold other than finite numbers, see `soundness.py`.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    whole: Shapes | None = None
    forms: Shapes | None = None
    own: frozenset[str] | None = None
    allowed: Allowed = field(default_factory=dict)

    def model_shapes(self) -> Shapes:
        """Return the shapes that a checkpoint must have to fit this model."""
        if self.whole is not None or self.forms is not None:
            return self.whole or self.forms or {}
        return {
            name: (dtype_name(tensor.dtype), tuple(tensor.shape))
            for name, tensor in self.tensors.items()
            if name.startswith(MODEL)
        }


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def first_difference(one: Shapes, other: Shapes) -> tuple[str, str, str] | None:
    """Return the first tensor in which two models differ, and what it is in each; None where they are alike."""
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            was, here = (f"{form[0]}{list(form[1])}" if form else "absent" for form in (one.get(name), other.get(name)))
            return name.removeprefix(MODEL), was, here
    return None
