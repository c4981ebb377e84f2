"""What the API already has words for, and the code not yet: one table, which shrinks as features land.

Asked by the core (a condition says why nothing starts) and by `trainmaster check` (the same sentence).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trainmaster.api.job import TrainingJobSpec


class Refusal(NamedTuple):
    """A field that asks for something that comes later."""

    field: str
    message: str


class _Later(NamedTuple):
    field: str
    asked: Callable[[TrainingJobSpec], bool]
    what: str
    cure: str


def _waits_for_a_gang(spec: TrainingJobSpec) -> bool:
    return spec.scheduling is not None and (spec.scheduling.gang != "None" or spec.scheduling.queue is not None)


_LATER = (_Later("spec.scheduling.gang", _waits_for_a_gang, "gangs and queues", "remove gang and queue"),)


def not_yet_supported(spec: TrainingJobSpec) -> tuple[Refusal, ...]:
    """Every line of the table that this spec asks for."""
    return tuple(
        Refusal(later.field, f"this version of Trainmaster does not have {later.what} yet: {later.cure}")
        for later in _LATER
        if later.asked(spec)
    )
