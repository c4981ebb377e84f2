"""Decide which objects a job should have beside its replicas: a table with a row per kind.

What such an object looks like is the platform's affair (cluster/objects.py). To add a kind, such as the pod group of a
scheduler, write a row here and a row there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.observed import NETWORK_POLICY, SERVICE


@dataclass(frozen=True)
class Kind:
    """Hold one kind of object, of which a job has one or none."""

    name: str  # as the platform knows it
    wanted: Callable[[Facts], bool]
    before_replicas: bool = False  # no replica is made before the job has it


KINDS = (
    Kind(SERVICE, wanted=lambda _: True),  # gives the pods DNS names, which frameworks may need
    Kind(NETWORK_POLICY, wanted=lambda _: True, before_replicas=True),  # else strangers could reach the first pods
)


def missing(facts: Facts) -> list[Kind]:
    """Return the kinds of which the job should have an object and has none, as far as the platform makes them."""
    there, made = facts.observed.objects, facts.observed.kinds
    return [kind for kind in KINDS if kind.name in made and kind.name not in there and kind.wanted(facts)]


def surplus(facts: Facts) -> list[Kind]:
    """Return the kinds of which the job has an object that it should not have."""
    return [kind for kind in KINDS if kind.name in facts.observed.objects and not kind.wanted(facts)]
