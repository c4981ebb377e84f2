"""Provide what the formulas of several strategies share: bytes that are sent, and bytes that are held.

Buffers of the communication (one bucket of 25 MiB at most) and the libraries themselves come on top of what is held.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.advice.model_facts import GroupFacts, ModelFacts

Options = Mapping[str, Any]

# The share of the bytes that is sent. That of PowerSGD depends on the shapes; this is the order of its default.
COMPRESSED = {"None": 1.0, "BF16": 0.5, "INT8": 0.25, "PowerSGD": 0.05, "TopK": 0.02}
_TOP_K = "TopK"


@dataclass(frozen=True)
class Flow:
    """Hold the bytes that one kind of rank sends and receives at every step.

    `through`: network, or memory of the host.
    """

    who: str
    sends: float
    receives: float
    why: str
    through: str = "network"


Algorithm = Callable[[float, GroupFacts], tuple[Flow, ...]]


def compressed(size: float, options: Options) -> float:
    """Return the bytes that are left of so many with the chosen compression."""
    return size * COMPRESSED[str(options.get("compression", "None"))]


def ring(size: float, ranks: int) -> float:
    """Return what each rank sends, and receives, in a ring all-reduce."""
    return 2 * size * (ranks - 1) / ranks


def medium(group: GroupFacts) -> str:
    """Return what the ranks of a group send through: the network, or memory of one host."""
    return "memory" if group.workers == 1 else "network"


def nothing(_options: Options, _model: ModelFacts, _group: GroupFacts) -> tuple[Flow, ...]:
    """Return no traffic."""
    return ()


def data_parallel(algorithm: Algorithm, options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    """Return the traffic of gradients that are added up; TopK goes from each to each."""
    if group.ranks == 1:
        return ()
    size = compressed(model.trained_bytes, options)
    return (_by_all_to_all if options.get("compression") == _TOP_K else algorithm)(size, group)


def _by_all_to_all(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    each = (group.ranks - 1) * size
    return (Flow("every rank", each, each, "its largest numbers and their places, to every other", medium(group)),)


@dataclass(frozen=True)
class Need:
    """Hold the bytes that one kind of process needs. `optimizer` and `activations` are None if they are not known."""

    who: str
    parameters: float
    gradients: float
    optimizer: float | None
    activations: float | None

    @property
    def total(self) -> float:
        """Return the sum of the bytes that are known."""
        return self.parameters + self.gradients + (self.optimizer or 0) + (self.activations or 0)


@dataclass(frozen=True)
class Division:
    """Hold into how many parts the model, the optimizer, the batch and a sample's activations are divided."""

    model: int = 1
    optimizer: int = 1
    shares: int = 1
    activations: int = 1


def on_every_rank(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    """Return what each rank needs that has the whole model and its own part of the batch."""
    return (need("every rank", model, group, Division(shares=group.ranks)),)


def on_every_part(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    """Return what each rank needs that has its part of the model and works on the whole batch."""
    return (need("every rank", model, group, Division(group.ranks, group.ranks, activations=group.ranks)),)


def need(who: str, model: ModelFacts, group: GroupFacts, division: Division) -> Need:
    """Return what one process needs, where the model is divided so."""
    parameters = (model.parameter_bytes + model.buffer_bytes) / division.model
    optimizer = times(model.optimizer_bytes, 1 / division.optimizer) if division.optimizer else 0.0
    activations = None
    if model.activation_bytes is not None:
        share = group.batch / division.shares
        at_once = share if group.at_once is None else min(share, group.at_once)
        activations = model.activation_bytes * at_once / division.activations
    return Need(who, parameters, model.trained_bytes / division.model, optimizer, activations)


def times(size: int | None, share: float) -> float | None:
    """Return this share of a size; None if the size is not known."""
    return None if size is None else size * share
