"""Tell whether the state of an object differs from the last one in nothing but what its tensors hold.

A snapshot is taken after each step, and then it has the same names, the same words and the same layout as before. To
make these anew takes longer than to copy the tensors of a small model: between two steps none of that code, and nothing
that it reads, is in the processor's caches.
"""

from __future__ import annotations

import marshal
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from trainmaster_trainer.checkpoint.trees import Writer
from trainmaster_trainer.scripts.generators import OwnGenerators

_MARSHAL = 2  # the version: what later ones write depends on who else refers to a value


class Captured(NamedTuple):
    """Captured is what an object had to keep."""

    state: Any  # held, so that no other one has its address
    sign: Any  # of the state
    writer: Writer  # its tensors, which hold the memory that the sign names
    tree: Any


def sign_of(thing: Any, state: Any) -> Any:
    """Return what is equal for two states of an object that have the same tree, and tensors in the same memory.

    None: that cannot be told. Our generators give the same state again where nothing was drawn.
    """
    if isinstance(thing, OwnGenerators):
        return id(state)
    try:
        if isinstance(thing, nn.Module):
            return [(name, _place(one)) for name, one in state.items()]
        if isinstance(thing, Optimizer) and state.keys() == {"state", "param_groups"}:
            return _exact(state["param_groups"]), [
                (key, name, _place(one) if isinstance(one, Tensor) else _exact(one))
                for key, kept in state["state"].items()
                for name, one in kept.items()
            ]
    except (AttributeError, RuntimeError, TypeError, ValueError):  # another layout, or a tensor without memory
        pass
    return None


def _place(tensor: Any) -> tuple[Any, ...]:
    """Return where a tensor lies, and how.

    Raises:
        TypeError: it is none, or a rank's part of one.
    """
    if type(tensor) not in (Tensor, nn.Parameter):
        raise TypeError("no plain tensor")
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _exact(value: Any) -> bytes:
    """Return bytes that differ where plain values do, also 1 and 1.0.

    Raises:
        ValueError: there is something else among them.
    """
    return marshal.dumps(value, _MARSHAL)
