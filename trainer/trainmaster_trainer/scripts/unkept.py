"""Find optimizers that take steps and are not kept: after a restart they would begin anew, and nobody would notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from trainmaster_trainer.checkpoint.pieces import local


class SteppingOptimizers:
    """SteppingOptimizers notes who takes steps, until it is asked."""

    def __init__(self) -> None:
        self._found: WeakSet[Optimizer] = WeakSet()
        self._handle = register_optimizer_step_post_hook(lambda one, _arguments, _keywords: self._found.add(one))

    def unkept_by(self, things: Mapping[str, Any]) -> list[str]:
        """Return the types of those whose state is in none of these objects, and note no more.

        Whether it is in an object that is neither a module nor an optimizer cannot be told where that gives copies: if
        such an object has tensors, no optimizer is named.
        """
        self._handle.remove()
        states = [thing.state_dict() for thing in things.values() if isinstance(thing, nn.Module | Optimizer)]
        kept = {_place(tensor) for tensor in _tensors(states)}
        unkept = [
            type(one).__name__
            for one in self._found
            if (mine := {_place(tensor) for tensor in _tensors([*one.state.values()])}) and not mine & kept
        ]
        others = [thing for thing in things.values() if not isinstance(thing, nn.Module | Optimizer)] if unkept else []
        may_be_in_another = any(_has_tensors(thing) for thing in others)
        return [] if may_be_in_another else sorted(unkept)


def _has_tensors(thing: Any) -> bool:
    return next(_tensors(thing.state_dict()), None) is not None


def _place(tensor: Tensor) -> int:
    return local(tensor.detach()).untyped_storage().data_ptr()


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield what a state has of tensors with values."""
    if isinstance(value, Tensor):
        if value.numel():
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in value:
            yield from _tensors(one)
