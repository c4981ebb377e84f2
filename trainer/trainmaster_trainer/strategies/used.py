"""What of a model a loss depends on, and what averaging cannot carry: looked at before gradients are exchanged.

Used by `data_parallel.py`, since DistributedDataParallel waits for a gradient of every parameter unless told not to;
and by all strategies that lay gradients out flat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group


def all_used(losses: Iterable[Tensor], parameters: Iterable[nn.Parameter], group: Group) -> bool:
    """Whether each loss depends on each trained parameter, on every rank. All ranks ask together.

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
    """Whether this rank's loss depends on each of them that is trained, as far as the graph shows."""
    found, hidden = _leaves(loss)
    return hidden or all(id(one) in found for one in parameters if one.requires_grad)


def _leaves(loss: Tensor) -> tuple[set[int], bool]:
    """The parameters in the graph, by id; and whether a part of it shows only when it is computed again.

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


def check_dense(strategy: str, model: nn.Module) -> None:
    """Refuse layers whose gradients name the rows that they change, instead of having a number for each parameter.

    Raises:
        ConfigurationError: there is one.
    """
    for name, layer in sparse_layers(model):
        raise ConfigurationError(
            f"spec.training.task: the layer {name!r} has sparse gradients, which {strategy} cannot add up. Make "
            f"the {type(layer).__name__} with sparse=False, or choose OneDevice, LocalSGD, ParameterServer or "
            "Gossip."
        )


def sparse_layers(model: nn.Module) -> Iterator[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    """Those whose gradients name rows."""
    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse:
            yield name, layer
