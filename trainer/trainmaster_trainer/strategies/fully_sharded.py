"""FullySharded: every rank holds 1/N of each parameter, its gradient and its moments, and takes its share of a batch.

It follows Rajbhandari et al., "ZeRO" (SC 2020), stage 3, and Zhao et al., "PyTorch FSDP" (VLDB 2023), on torch's
`fully_shard`. Before a layer computes, its parameters are gathered from all ranks, and dropped again after; after its
backward pass, gradients are added up and each rank keeps its 1/N. The optimizer never sees more than that.

Ranks on the CPUs of one host gather and scatter through its memory (`collectives/shards.py`); all others by torch's own
collectives.

Bytes per step and rank: two gathers and one reduction of the model, 3S(N-1)/N, against 2S(N-1)/N of a ring all-reduce.
Memory per rank: (parameters + gradients + moments)/N, and one whole layer at a time (`Task.model_layers`; a
model that says nothing of its layers is gathered as a whole).

The loss is that of OneDevice, step by step, but for the order of float32 sums (1e-5 relative); shares of unequal size
are weighed as in `all_reduce.py`. The ranks' losses must depend on the same parameters at each step: gradients are
added up in pieces whose size follows from who has one, and experts that only some ranks' samples reach do not fit that
(`used_parameters.py` notices).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from typing_extensions import override

from trainmaster_trainer.collectives.choose import share_shards
from trainmaster_trainer.collectives.shards import SharedShards, exchange_through
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.axes import Axes
from trainmaster_trainer.strategies.outside_changes import OutsideChanges
from trainmaster_trainer.strategies.partitioned import Partitioned
from trainmaster_trainer.strategies.strategy import check_options
from trainmaster_trainer.strategies.used_parameters import check_dense
from trainmaster_trainer.task import Task

_SPREAD = "a model that is spread over ranks"


class FullySharded(Partitioned):
    """FullySharded spreads the model, its gradients and its moments over all ranks."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("FullySharded", options, {})
        self.build(task, group, Axes(sharded=group.world_size))

    @override
    def divide(self, model: nn.Module) -> nn.Module:
        shards = share_shards(self.group, list(range(self.group.world_size)))
        return shard(model, units(self.task, model), self.mesh["sharded"], shards)


def units(task: Task, model: nn.Module) -> list[nn.Module]:
    """Return the layers that are gathered one at a time; none if the task does not name its layers."""
    try:
        layers = [layer for _, layer in task.model_layers(model)]
    except ConfigurationError:
        return []
    return apart(model, layers)


def apart(model: nn.Module, layers: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the layers that the model calls itself and that share no parameter with another layer."""
    inside = set(model.modules()) - {model}
    once = dict.fromkeys(layers)
    holders = Counter(parameter for layer in once for parameter in layer.parameters())
    return [
        layer
        for layer in once
        if layer in inside and (own := list(layer.parameters())) and all(holders[parameter] == 1 for parameter in own)
    ]


def shard(model: nn.Module, layers: list[nn.Module], mesh: DeviceMesh, shards: SharedShards | None) -> nn.Module:
    """Spread all parameters over a mesh; if the mesh has a second dimension in front, each shard has copies.

    Where the ranks of the mesh's last dimension share memory, `shards`, they exchange through it.

    Raises:
        ConfigurationError: a parameter has nothing to cut, or parameters of several dtypes are to lie together.
    """
    check_dense(_SPREAD, model)
    _check_shapes(model)
    for parameter in model.parameters():
        if not parameter.is_contiguous():  # as after `.to(memory_format=torch.channels_last)`: torch cuts no others
            parameter.data = parameter.data.contiguous()
    apart = {parameter for layer in layers for parameter in layer.parameters()}
    rest = [(name, one) for name, one in model.named_parameters() if one not in apart]
    _check_dtypes([*(list(layer.named_parameters()) for layer in layers), rest])
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    _keep_steady(model, layers)
    if shards:
        exchange_through(shards, model)
    return model


def _check_shapes(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise ConfigurationError(
                f"spec.training.task: the parameter {name} is a single number without a dimension, which cannot be "
                "spread over ranks. Give it the shape [1]."
            )
        if not parameter.numel():
            raise ConfigurationError(
                f"spec.training.task: the parameter {name} has the shape {list(parameter.shape)}, so it has no number "
                "that could be spread over ranks. Leave it out, or choose another strategy."
            )


def _keep_steady(model: nn.Module, layers: list[nn.Module]) -> None:
    """Check that no forward pass changes a layer's parameters, which are dropped after it has computed."""
    inner = {parameter for layer in layers for parameter in layer.parameters()}
    names = {module: name for name, module in model.named_modules()}
    for unit in [*layers, model]:
        places = [
            (f"{names[module]}.{name}".lstrip("."), module, name)
            for module in unit.modules()
            for name, parameter in module.named_parameters(recurse=False)
            if unit is not model or parameter not in inner
        ]
        OutsideChanges(_SPREAD, unit, partial(_at, places))


def _at(places: list[tuple[str, nn.Module, str]]) -> dict[str, Tensor]:
    return {told: getattr(module, name) for told, module, name in places}


def _check_dtypes(units: list[list[tuple[str, nn.Parameter]]]) -> None:
    """Check that parameters that are gathered together have one dtype, as they lie in one piece of memory."""
    for parameters in units:
        firsts = {one.dtype: name for name, one in reversed(parameters) if one.requires_grad}
        if len(firsts) > 1:
            said = ", ".join(f"{name} ({str(dtype).removeprefix('torch.')})" for dtype, name in firsts.items())
            raise ConfigurationError(
                f"spec.training.task: parameters that are gathered together have several dtypes: {said}. Give them "
                "one, or let model_layers() name them as layers of their own, or choose another strategy."
            )
