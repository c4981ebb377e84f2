"""What the API already has words for, and the code not yet: one table, which shrinks as features land.

Asked by the core (a condition says why nothing starts) and by `trainmaster check` (the same sentence).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trainmaster.api.job import TrainingJobSpec

STRATEGIES = (
    "OneDevice",
    "Mirrored",
    "AllReduce",
    "CentralStorage",
    "LocalSGD",
    "FullySharded",
    "Pipeline",
    "Tensor",
    "Mesh",
    "ParameterServer",
    "Gossip",
)
"""Strategy types that train today."""


class Refusal(NamedTuple):
    """A field that asks for something that comes later."""

    field: str
    message: str


class _Later(NamedTuple):
    field: str
    asked: Callable[[TrainingJobSpec], bool]
    what: str
    cure: str


def _resume_from_job(spec: TrainingJobSpec) -> bool:
    return spec.checkpoint.resume_from is not None and spec.checkpoint.resume_from.job is not None


def _strategy(spec: TrainingJobSpec) -> bool:
    """A script of one's own brings its own training: Trainmaster then only looks after its members."""
    alone = spec.independent and spec.training.command is not None
    return spec.strategy.type not in STRATEGIES and not alone


_LATER = (
    _Later(
        "spec.strategy.type",
        _strategy,
        "this strategy",
        f"use one of {', '.join(STRATEGIES)}",
    ),
    _Later("spec.scheduling", lambda s: s.scheduling is not None, "gangs, queues and spares", "remove it"),
    _Later(
        "spec.checkpoint.resumeFrom.job", _resume_from_job, "resuming from a job's name", "write its folder as path"
    ),
)


def not_yet_supported(spec: TrainingJobSpec) -> tuple[Refusal, ...]:
    """Every line of the table that this spec asks for."""
    return tuple(
        Refusal(later.field, f"this version of Trainmaster does not have {later.what} yet: {later.cure}")
        for later in _LATER
        if later.asked(spec)
    )
