"""Average is the exponential moving average of a model's weights, which checkpoints keep beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainmaster_trainer.checkpoint.pieces import local

EMA = "ema/"  # before the name of a parameter, in a state


class Average:
    """Average follows the parameters that a rank has, or its parts of them: after each optimizer step a bit nearer."""

    def __init__(self, optimizer: Optimizer, names: Mapping[nn.Parameter, str], decay: float) -> None:
        self._decay = decay
        self._names = {one: name for one, name in names.items() if one.is_floating_point() or one.is_complex()}
        self._kept = {one: one.detach().clone() for one in self._names}
        optimizer.register_step_post_hook(self._update)

    @torch.no_grad()
    def _update(self, *_: Any) -> None:
        for parameter, kept in self._kept.items():
            local(kept).lerp_(local(parameter), 1.0 - self._decay)

    def tensors(self) -> dict[str, Tensor]:
        """Return the live averages by the names that they have in a state."""
        return {EMA + self._names[parameter]: kept for parameter, kept in self._kept.items()}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], placed: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Go on from a state that has them; from the weights, which are restored, where it has none."""
        for parameter, kept in self._kept.items():
            saved = tensors.get(EMA + self._names[parameter])
            local(kept).copy_(local(parameter if saved is None else placed(saved, parameter)))
