"""Compute how much memory each kind of process needs for the model: parameters, gradients, optimizer, activations.

Buffers of the communication (one bucket of 25 MiB at most) and the libraries themselves come on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.advice.facts import GroupFacts, ModelFacts
from trainmaster.wire.strategies import STRATEGIES


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
class _Division:
    """Hold into how many parts the model, the optimizer, the batch and a sample's activations are divided."""

    model: int = 1
    optimizer: int = 1
    shares: int = 1
    activations: int = 1


def needs(strategy_type: str, options: Mapping[str, Any], model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    """Return the memory that each kind of process needs."""
    if strategy_type == "ParameterServer":
        share = 1 / max(1, group.servers)
        server = Need(
            "every server",
            model.parameter_bytes * share,
            model.trained_bytes * share,
            _times(model.optimizer_bytes, share),
            0,
        )
        return (_need("every worker", model, group, _Division(optimizer=0, shares=group.ranks)), server)
    if strategy_type == "CentralStorage":
        held = Need("the CPU, once", model.parameter_bytes, model.trained_bytes, model.optimizer_bytes, 0)
        return (held, _need("every device", model, group, _Division(optimizer=0, shares=group.ranks)))
    return (_need("every rank", model, group, _division(strategy_type, options, group)),)


def _division(strategy_type: str, options: Mapping[str, Any], group: GroupFacts) -> _Division:
    ranks = group.ranks
    if strategy_type == "FullySharded":
        return _Division(ranks, ranks, shares=ranks)
    if not STRATEGIES[strategy_type].shares_batch:
        return _Division(ranks, ranks, activations=ranks)
    if strategy_type == "Mesh":
        data, sharded, *inside = (int(options.get(axis, 1)) for axis in ("data", "sharded", "pipeline", "tensor"))
        parts = inside[0] * inside[1]
        return _Division(sharded * parts, sharded * parts, data * sharded, parts)
    return _Division(shares=ranks)


def _need(who: str, model: ModelFacts, group: GroupFacts, division: _Division) -> Need:
    parameters = (model.parameter_bytes + model.buffer_bytes) / division.model
    optimizer = _times(model.optimizer_bytes, 1 / division.optimizer) if division.optimizer else 0.0
    activations = None
    if model.activation_bytes is not None:
        share = group.batch / division.shares
        at_once = share if group.at_once is None else min(share, group.at_once)
        activations = model.activation_bytes * at_once / division.activations
    return Need(who, parameters, model.trained_bytes / division.model, optimizer, activations)


def _times(size: int | None, share: float) -> float | None:
    return None if size is None else size * share
