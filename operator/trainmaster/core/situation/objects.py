"""Decide which objects a job should have beside its replicas: a table with a row per kind.

What such an object looks like is the platform's affair (cluster/job_objects.py). To add a kind, such as the pod group
of a scheduler, write a row here and a row there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.observed import NETWORK_POLICY, SERVICE


@dataclass(frozen=True)
class JobObjectKind:
    """Hold one kind of object, of which a job has one or none."""

    wanted: Callable[[Facts], bool] = lambda _: True
    before_replicas: bool = False  # no replica is made before the job has it


KINDS = {
    SERVICE: JobObjectKind(),  # gives the pods DNS names, which frameworks may need
    NETWORK_POLICY: JobObjectKind(before_replicas=True),  # else strangers could reach the first pods
}


def missing(facts: Facts) -> list[str]:
    """Return the kinds of which the job should have an object and has none, as far as the platform makes them."""
    absent = facts.observed.kinds - facts.observed.objects
    return [name for name, kind in KINDS.items() if name in absent and kind.wanted(facts)]


def surplus(facts: Facts) -> list[str]:
    """Return the kinds of which the job has an object that it should not have."""
    return [name for name, kind in KINDS.items() if name in facts.observed.objects and not kind.wanted(facts)]
