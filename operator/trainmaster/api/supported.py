"""List what the API has fields for and the code does not support yet.

A condition of the job and `trainmaster check` show the same sentences.
"""

from collections.abc import Callable
from typing import NamedTuple

from trainmaster.api.job import TrainingJobSpec


class Refusal(NamedTuple):
    """A refusal is a field that asks for something that is not supported yet."""

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
    """Return each line of the table that this spec asks for."""
    return tuple(
        Refusal(later.field, f"this version of Trainmaster does not have {later.what} yet: {later.cure}")
        for later in _LATER
        if later.asked(spec)
    )
