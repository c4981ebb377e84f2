"""Moment puts back what a look at a model changes.

Some strategies must see a forward pass before the first step: which parameters it uses, what shapes flow. It must leave
no trace, or the training would not be OneDevice's. And after eval mode each module gets its own mode back: a task may
train with some of them frozen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainmaster_trainer.randomness import Generators


def with_extra_state(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that keep something beside parameters and buffers (`get_extra_state`), by name."""
    default = nn.Module.get_extra_state
    return {name: module for name, module in model.named_modules() if type(module).get_extra_state is not default}


class ForwardState:
    """ForwardState holds what a look at a model changes in it beside its parameters: its buffers and extra state.

    Which parameters get a gradient is held too: an evaluation may have frozen them to be quicker.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._buffers = [buffer.clone() for buffer in model.buffers()]
        self._trained = [(one, one.requires_grad) for one in model.parameters()]
        having = with_extra_state(model).values()
        self._extra = [(module, copy.deepcopy(module.get_extra_state())) for module in having]

    def put_back(self) -> None:
        """Restore the buffers, the extra state and what gets a gradient. This may be called several times."""
        with torch.no_grad():
            for buffer, before in zip(self._model.buffers(), self._buffers, strict=True):
                buffer.copy_(before)
        for one, gets_a_gradient in self._trained:
            one.requires_grad_(gets_a_gradient)
        for module, extra in self._extra:
            module.set_extra_state(copy.deepcopy(extra))


class ModelGuard:
    """ModelGuard holds and restores what a forward pass changes besides gradients: random state, buffers, extra state.

    It holds parameters too, such as a target network's, if these are `kept`: as much memory again.
    """

    def __init__(self, model: nn.Module, kept: Iterable[Tensor] = ()) -> None:
        self._generators = Generators.now()
        self._inside = ForwardState(model)
        self._kept = [(tensor, tensor.detach().clone()) for tensor in kept]

    def come_back(self) -> None:
        """Restore all that is held."""
        self._inside.put_back()
        with torch.no_grad():
            for tensor, before in self._kept:
                tensor.copy_(before)
        self._generators.put_back()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode; afterwards each module is in its own mode again."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def without_trace(model: nn.Module) -> Iterator[None]:
    """Run what is within in eval mode; afterwards the model and the random numbers are as they were."""
    before = ModelGuard(model)
    try:
        with eval_mode(model):
            yield
    finally:
        before.come_back()
