"""Raise a status that is behind what agents and pods know, because it was edited by hand, or lost.

Agents take no orders of an attempt older than one that they have seen, and the names of pods are never used again. So a
lower number in the status would be waited for without end. Each heartbeat was verified to come from a pod of this job;
its number is believed up to AT_ONCE plus one attempt for each second of the job's age.
"""

import dataclasses

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict
from trainmaster.wire import names

# A job of any age may have had so many attempts, and so many replicas of a slot.
AT_ONCE = 100
EDITED = "The status was edited or lost"
_TOLD = 4  # at most so many differences in the message


def wind_on(facts: Facts) -> Verdict:
    """Raise the attempt to the highest that is reported, and each slot to its newest replica."""
    attempt, incarnations = _reported(facts), _newest(facts)
    said = []
    if attempt > facts.status.attempt:
        said.append(f"attempt {facts.status.attempt} where agents report {attempt}")
    known = facts.status.incarnations
    said += [f"{key}-{known.get(key, 0)} where there is {key}-{number}" for key, number in incarnations.items()]
    return Verdict(status=_wound_on(facts, attempt, incarnations, ", ".join(said[:_TOLD]))) if said else NOTHING


def _reported(facts: Facts) -> int:
    beats = (replica.heartbeat for replica in facts.observed.replicas)
    return max((beat.attempt for beat in beats if beat and beat.attempt <= _most(facts)), default=0)


def _newest(facts: Facts) -> dict[str, int]:
    """Return the newest incarnation of each slot whose replicas are newer than the status says."""
    known = facts.status.incarnations
    found: dict[str, int] = {}
    for replica in facts.observed.replicas:
        key = names.replica_key(replica.role, replica.index)
        if max(known.get(key, 0), found.get(key, 0)) < replica.incarnation <= _most(facts):
            found[key] = replica.incarnation
    return found


def _most(facts: Facts) -> int:
    return AT_ONCE + int((facts.now - facts.created).total_seconds())


def _wound_on(facts: Facts, attempt: int, incarnations: dict[str, int], said: str) -> TrainingJobStatus:
    return dataclasses.replace(
        facts.status,
        attempt=max(attempt, facts.status.attempt),
        incarnations={**facts.status.incarnations, **incarnations},
        message=f"{EDITED}: it said {said}. Going on from what there is.",
    )
