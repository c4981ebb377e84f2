"""Raise a status that is behind what agents and pods know, because it was edited by hand, or lost.

Agents take no orders of an attempt older than one that they have seen, and the names of pods are never used again. So a
lower number in the status would be waited for without end. Each heartbeat was verified to come from a pod of this job;
its number is believed up to a bound (situation/ahead.py).
"""

import dataclasses

from trainmaster.core.situation import ahead
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.verdict import NOTHING, Verdict

_TOLD = 4  # at most so many differences in the message


def wind_on(facts: Facts) -> Verdict:
    """Raise the attempt to the highest that is reported, and each slot to its newest replica."""
    attempt, incarnations = ahead.reported_attempt(facts), ahead.newest_incarnations(facts)
    said = []
    if attempt > facts.status.attempt:
        said.append(f"attempt {facts.status.attempt} where agents report {attempt}")
    known = facts.status.incarnations
    said += [f"{key}-{known.get(key, 0)} where there is {key}-{number}" for key, number in incarnations.items()]
    if not said:
        return NOTHING
    return Verdict(
        status=dataclasses.replace(
            facts.status,
            attempt=max(attempt, facts.status.attempt),
            incarnations={**known, **incarnations},
            message=f"{ahead.EDITED}: it said {', '.join(said[:_TOLD])}. Going on from what there is.",
        )
    )
