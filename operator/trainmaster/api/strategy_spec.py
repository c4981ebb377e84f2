"""Define spec.strategy: which of the ways to train, and the options of that one way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from trainmaster.api.model import Int, Model
from trainmaster.wire.strategies import STRATEGIES, where

if TYPE_CHECKING:
    StrategyType = str
else:
    StrategyType = Literal[tuple(STRATEGIES)]

_Axis = Annotated[Int, Field(ge=1, le=65536)]


class MirroredOptions(Model):
    """The options say how the devices of one machine add up their gradients."""

    reduction: Literal["Native", "HierarchicalCopy", "OneDevice"] = "Native"
    """Native is NCCL between GPUs and shared memory between CPU processes; HierarchicalCopy adds up in pairs, then \
pairs of pairs; OneDevice adds up on the first device."""


class AllReduceOptions(Model):
    """The options say how the workers add up their gradients at every step."""

    algorithm: Literal["Native", "Ring", "Hierarchical", "Driver"] = "Native"
    """Native is NCCL between GPUs; without GPUs, shared memory where one pod (or one laptop) has all ranks, else \
gloo. Ring passes chunks from neighbour to neighbour (least traffic per worker); Hierarchical adds up inside each \
worker first, then between workers; Driver adds up on worker 0 (simplest)."""


class ParameterServerOptions(Model):
    """The options say how workers and parameter servers keep step."""

    update: Literal["Async", "Sync"] = "Async"
    """Async: each worker pushes its gradient when it is ready and nobody waits. Sync: one update per step, made of \
the gradients of all workers."""
    max_staleness: Annotated[Int, Field(ge=0, le=1_000_000)] | None = None
    """Async only: how many steps the fastest worker may be ahead of the slowest one. 0 is in lock step; unset is \
without a bound."""
    backup_workers: Annotated[Int, Field(ge=0, le=10_000)] = 0
    """Sync only: how many of the slowest workers a step does not wait for; their late gradients are dropped."""


class GossipOptions(Model):
    """The options say how workers average with one another, without a centre."""

    peers: Annotated[Int, Field(ge=1, le=64)] = 1
    """`peers` is the number of other workers with which each worker averages after a step."""
    top_k_percent: Annotated[Int, Field(ge=1, le=100)] | None = None
    """Send only this share of the parameters: half of it those that changed most, half in turn. Unset sends all."""


class LocalSGDOptions(Model):
    """The options say how often workers, which train alone in between, meet."""

    every: Annotated[Int, Field(ge=1, le=1_000_000)] = 8
    """Steps between two averagings of the model."""
    outer: Literal["Average", "Nesterov"] = "Average"
    """`outer` is what is done at a meeting: take the average, or take a momentum step towards it (DiLoCo)."""


class PipelineOptions(Model):
    """The options say how batches flow through the stages of a model; one rank holds one stage."""

    schedule: Literal["GPipe", "1F1B"] = "1F1B"
    """GPipe runs all forwards, then all backwards. 1F1B alternates them and needs less memory."""
    micro_batches: Annotated[Int, Field(ge=1, le=65536)] | None = None
    """Into how many parts a batch is cut. More parts mean less idling. Unset: four per stage."""


class MeshOptions(Model):
    """Several kinds of parallelism at once. The product of the four must be the number of ranks."""

    data: _Axis = 1
    """Copies of the model, each with its own part of the batch."""
    sharded: _Axis = 1
    """Over how many ranks each copy's parameters are spread (as in FullySharded)."""
    pipeline: _Axis = 1
    """Stages that each copy is cut into."""
    tensor: _Axis = 1
    """Ranks that compute each layer together."""

    @property
    def size(self) -> int:
        """Return the number of ranks that this mesh needs."""
        return self.data * self.sharded * self.pipeline * self.tensor


class StrategySpec(Model):
    """One word for how to train, and options of that type only."""

    type: StrategyType = Field(description=" ".join(f"{name}: {row.means}." for name, row in STRATEGIES.items()))
    compression: Literal["None", "BF16", "INT8", "PowerSGD", "TopK"] = Field(
        default="None",
        description="Send smaller gradients: BF16 halves them, INT8 quarters them, PowerSGD sends a low-rank "
        f"approximation, TopK the largest elements. For {', '.join(where(lambda traits: traits.compresses))}. Under "
        "ParameterServer, what a worker has left out of a gradient, to add it to its next one, is lost when it dies: "
        "the model at the end is another one then.",
    )
    mirrored: MirroredOptions | None = None
    """Options of type Mirrored."""
    all_reduce: AllReduceOptions | None = None
    """Options of type AllReduce."""
    parameter_server: ParameterServerOptions | None = None
    """Options of type ParameterServer."""
    gossip: GossipOptions | None = None
    """Options of type Gossip."""
    local_sgd: LocalSGDOptions | None = Field(default=None, alias="localSGD")
    """Options of type LocalSGD."""
    pipeline: PipelineOptions | None = None
    """Options of type Pipeline."""
    mesh: MeshOptions | None = None
    """Options of type Mesh."""

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the chosen type as in the YAML, with defaults, and the compression if there is one."""
        attribute = STRATEGIES[self.type].options
        given = getattr(self, attribute) if attribute else None
        options = (given or _DEFAULTS[attribute]).to_dict() if attribute else {}
        return options if self.compression == "None" else {**options, "compression": self.compression}


_DEFAULTS: dict[str, Model] = {
    "mirrored": MirroredOptions(),
    "all_reduce": AllReduceOptions(),
    "parameter_server": ParameterServerOptions(),
    "gossip": GossipOptions(),
    "local_sgd": LocalSGDOptions(),
    "pipeline": PipelineOptions(),
    "mesh": MeshOptions(),
}
