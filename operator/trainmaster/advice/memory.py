"""How much memory each kind of process needs for the model: parameters, gradients, optimizer, activations.

Buffers of the communication (one bucket of 25 MiB at most) and the libraries themselves come on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.advice.facts import GroupFacts, ModelFacts


@dataclass(frozen=True)
class Need:
    """Bytes of one kind of process. `activations` is None where they are not known."""

    who: str
    parameters: float
    gradients: float
    optimizer: float
    activations: float | None

    @property
    def total(self) -> float:
        """All that is known of it."""
        return self.parameters + self.gradients + self.optimizer + (self.activations or 0)


@dataclass(frozen=True)
class _Division:
    """By how much a rank's part of the model is divided, and over how many shares the batch is."""

    model: int = 1
    optimizer: int = 1
    shares: int = 1


def needs(strategy_type: str, options: Mapping[str, Any], model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    """One line per kind of process."""
    if strategy_type == "ParameterServer":
        share = 1 / max(1, group.servers)
        server = Need(
            "every server",
            model.parameter_bytes * share,
            model.parameter_bytes * share,
            model.optimizer_bytes * share,
            0,
        )
        return (_need("every worker", model, group, _Division(optimizer=0, shares=group.ranks)), server)
    if strategy_type == "CentralStorage":
        held = Need("the CPU, once", model.parameter_bytes, model.parameter_bytes, model.optimizer_bytes, 0)
        return (held, _need("every device", model, group, _Division(optimizer=0, shares=group.ranks)))
    return (_need("every rank", model, group, _division(strategy_type, options, group)),)


def _division(strategy_type: str, options: Mapping[str, Any], group: GroupFacts) -> _Division:
    ranks = group.ranks
    if strategy_type == "FullySharded":
        return _Division(ranks, ranks, ranks)
    if strategy_type in ("Pipeline", "Tensor"):
        return _Division(ranks, ranks, ranks)  # a stage or slice has 1/N of the activations of the whole batch
    if strategy_type == "Mesh":
        data, *others = (int(options.get(axis, 1)) for axis in ("data", "sharded", "pipeline", "tensor"))
        parts = others[0] * others[1] * others[2]
        return _Division(parts, parts, data * parts)
    return _Division(1, 1, ranks)


def _need(who: str, model: ModelFacts, group: GroupFacts, division: _Division) -> Need:
    parameters = (model.parameter_bytes + model.buffer_bytes) / division.model
    optimizer = model.optimizer_bytes / division.optimizer if division.optimizer else 0.0
    activations = None
    if model.activation_bytes is not None:
        activations = model.activation_bytes * group.batch / division.shares
    return Need(who, parameters, model.parameter_bytes / division.model, optimizer, activations)
