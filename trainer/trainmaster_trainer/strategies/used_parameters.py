"""Find, before gradients are exchanged, on which parameters a loss depends, and what averaging cannot carry.

DistributedDataParallel waits for a gradient of every parameter unless told not to (`data_parallel.py`); `fully_shard`
adds up whatever gradients there are, in the order in which they lie (`partitioned.py`); and other strategies lay
gradients out flat.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.model_guard import with_extra_state


def all_used(losses: Iterable[Tensor], parameters: Iterable[nn.Parameter], group: Group) -> bool:
    """Return whether each loss depends on each trained parameter, on every rank. All ranks call this together.

    One look at the graph, without a backward pass.
    """
    trained = list(parameters)
    missing = not all(uses_all(loss, trained) for loss in losses)
    if group.world_size == 1:
        return not missing
    told = torch.tensor([missing], dtype=torch.int32, device=group.device)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return not told.item()


def uses_all(loss: Tensor, parameters: Iterable[nn.Parameter]) -> bool:
    """Return whether this rank's loss depends on each trained parameter, as far as the graph shows."""
    found, hidden = _leaves(loss)
    return hidden or all(id(one) in found for one in parameters if one.requires_grad)


def _leaves(loss: Tensor) -> tuple[set[int], bool]:
    """Return the ids of the parameters in the graph, and whether a part of it shows only when it is computed again.

    That is so where activations are checkpointed the reentrant way (torch.utils.checkpoint).
    """
    found: set[int] = set()
    hidden = False
    for node in _nodes(loss):
        hidden = hidden or node.name() == "CheckpointFunctionBackward"
        if hasattr(node, "variable"):
            found.add(id(node.variable))
    return found, hidden


def _nodes(loss: Tensor) -> Iterator[torch.autograd.graph.Node]:
    todo = [loss.grad_fn] if loss.grad_fn is not None else []
    seen = set(todo)
    while todo:
        node = todo.pop()
        yield node
        new = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= new
        todo += new


class SameUse:
    """SameUse notices ranks that have given gradients to different parameters, where that would mix up parameters.

    What is told after one backward pass is looked at before the next is told, and before a state is kept: no rank waits
    for a device that is still computing.
    """

    def __init__(self, names: Mapping[nn.Parameter, str], ranks: dist.ProcessGroup, device: torch.device) -> None:
        self._names = names
        self._ranks = ranks
        self._device = device
        self._unused: list[str] = []  # here, in the last backward pass
        self._told: Tensor | None = None  # the highest number of all ranks, and the lowest one's negative

    def tell(self) -> None:
        """Exchange, after a backward pass, which parameters have no gradient. All ranks call it together.

        Raises:
            ConfigurationError: as `verify` does.
        """
        self.verify()
        self._unused = [name for parameter, name in self._names.items() if parameter.grad is None]
        number = zlib.crc32("\n".join(self._unused).encode())
        self._told = torch.tensor([number, -number], device=self._device)
        dist.all_reduce(self._told, dist.ReduceOp.MAX, group=self._ranks)

    def verify(self) -> None:
        """Check what was told last.

        Raises:
            ConfigurationError: gradients were of different parameters. The weights are not to be used any more.
        """
        if self._told is not None and self._told.sum().item():
            here = f"without {', '.join(self._unused[:3])}" if self._unused else "with all of them"
            raise ConfigurationError(
                "spec.training.task: a step's gradients were of different parameters on different ranks (on this one "
                f"{here}), and ranks that each hold a part of the parameters cannot add those up. Let the loss depend "
                "on the same parameters whatever the samples are, as with experts that add zero times their output "
                "where no sample reaches them; or choose AllReduce or ParameterServer."
            )


def check_dense(strategy: str, model: nn.Module) -> None:
    """Refuse layers with sparse gradients, which name the rows that they change.

    Raises:
        ConfigurationError: there is one.
    """
    for name, layer in sparse_layers(model):
        raise ConfigurationError(
            f"spec.training.task: the layer {name!r} has sparse gradients, which {strategy} cannot add up. Make "
            f"the {type(layer).__name__} with sparse=False, or choose OneDevice, LocalSGD, ParameterServer or "
            "Gossip."
        )


def check_no_extra_state(strategy: str, model: nn.Module) -> None:
    """Refuse modules that keep more than parameters and buffers, as that would stay in the process that computes.

    Raises:
        ConfigurationError: one of them does.
    """
    for name in with_extra_state(model):
        extra = f"{name}._extra_state".lstrip(".")  # as in the model's state_dict
        raise ConfigurationError(
            f"spec.training.task: its model keeps {extra} (get_extra_state), which {strategy} does not carry. Keep it "
            "in a buffer, or choose AllReduce, LocalSGD or Gossip."
        )


def sparse_layers(model: nn.Module) -> Iterator[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    """Yield the layers whose gradients are sparse: they name the rows that they change."""
    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse:
            yield name, layer
