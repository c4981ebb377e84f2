"""Mesh combines several kinds of parallelism, as in Narayanan et al., "Efficient large-scale training" (SC 2021).

    mesh: {data: 2, sharded: 2, pipeline: 2, tensor: 2}         16 ranks

First the model is cut into `pipeline` stages, then each stage's layers are split among `tensor` ranks, then what is
left of each parameter is spread over `sharded` ranks; of all that there are `data` copies, each with its own part of
the batch (`sharded` ranks have parts of their own, too). Any axis may be 1. `axes.py` says which rank is where.

With stages, the schedule is 1F1B with four micro-batches per stage (`pipeline.py`).

The loss is that of OneDevice, step by step, but for the order of float32 sums (1e-5 relative).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from typing_extensions import override

from trainmaster_trainer.collectives.choose import share_shards
from trainmaster_trainer.data import Batch
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.axes import Axes
from trainmaster_trainer.strategies.fully_sharded import apart, shard, units
from trainmaster_trainer.strategies.partitioned import Partitioned
from trainmaster_trainer.strategies.pipeline import Pipe, Timetable, stage_of
from trainmaster_trainer.strategies.stages import Stage
from trainmaster_trainer.strategies.strategy import check_options
from trainmaster_trainer.strategies.tensor import plan_of, split_layers
from trainmaster_trainer.task import Task
from trainmaster_trainer.validation import Evaluator


class Mesh(Partitioned):
    """Mesh holds stages of split layers with spread parameters, in several copies."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("Mesh", options, dict.fromkeys(Axes().names, ()))
        self.build(task, group, axes_of(options, group.world_size))
        self.pipe = Pipe(self, Timetable()) if self.axes.pipeline > 1 else None

    @override
    def divide(self, model: nn.Module) -> nn.Module:
        axes = self.axes
        plan = plan_of(self.task, model, axes.tensor) if axes.tensor > 1 else []
        part = stage_of(self.task, model, axes, self.group.rank) if axes.pipeline > 1 else model
        split_layers(plan, part, self.mesh["tensor"])
        if axes.data * axes.sharded == 1:
            return part
        layers = apart(part, part.layers) if isinstance(part, Stage) else units(self.task, model)
        mesh = self.mesh["data", "sharded"] if axes.data > 1 else self.mesh["sharded"]
        ranks = dist.get_process_group_ranks(self.mesh["sharded"].get_group())
        return shard(part, layers, mesh, share_shards(self.group, ranks))

    @override
    def step(self, batch: Batch) -> Tensor | None:
        return self.pipe.step(batch) if self.pipe else super().step(batch)

    @override
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        return self.evaluate_with(self.pipe.relayed if self.pipe else self.model, trial)


def axes_of(options: Mapping[str, Any], ranks: int) -> Axes:
    """Return the axes that `spec.strategy.mesh` asks for.

    Raises:
        ConfigurationError: their product is not the number of ranks.
    """
    axes = Axes(**options)
    if axes.size != ranks:
        rest = math.prod((axes.pipeline, axes.sharded, axes.tensor))
        other = f", or mesh.data to {ranks // rest}" if ranks % rest == 0 else ""
        raise ConfigurationError(
            f"spec.strategy.mesh: data {axes.data}, sharded {axes.sharded}, pipeline {axes.pipeline} and tensor "
            f"{axes.tensor} make {axes.size} ranks, and here are {ranks}. Set spec.workers.replicas times "
            f"spec.workers.gpus to {axes.size}{other}."
        )
    return axes
