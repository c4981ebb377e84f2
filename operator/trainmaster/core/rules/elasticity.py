"""Apply `spec.elasticity`: train on with the workers present, within bounds, and with all when they are back.

The group goes on without a worker that has not come for WAIT_SECONDS, as long as `minReplicas` are there; its pod stays
wanted. When all missing workers are there again, the group grows: a new attempt that costs no budget, before which
ranks save. At most every PARTIAL_SECONDS it grows by those that are there. Where members come and go one by one, this
is about the start only; later each worker that is there takes part.
"""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names

# How long a group waits for a worker before it goes on without it.
WAIT_SECONDS = 60
# A group trains for so long before it grows by only a part of its missing workers.
PARTIAL_SECONDS = 600


def fit(facts: Facts) -> Verdict:
    """Shrink a group that waits; grow one that trains."""
    if facts.job.spec.elasticity is None or not facts.regime.group():
        return NOTHING
    ended = [slot for slot in facts.left_out if slot.replica and not slot.replica.alive]
    if ended:  # no rank trains with them, so nothing else changes
        return Verdict(status=dataclasses.replace(facts.status, incarnations=facts.replacing(ended)))
    return _shrink(facts) if facts.status.phase in phases.GATHERING else _grow(facts)


def _shrink(facts: Facts) -> Verdict:
    """Change a group that gathers: take in absent workers that have come, or go on without missing ones."""
    back = {slot.key for slot in facts.left_out if slot.ready}
    if back:
        absent = tuple(key for key in facts.status.absent if key not in back)
        return Verdict(status=dataclasses.replace(facts.status, absent=absent))
    missing = {slot.key for slot in facts.missing}
    left = [slot for slot in facts.slots if slot.role == names.WORKER and slot.key not in missing]
    servers = [slot for slot in facts.missing if slot.role != names.WORKER]
    least = facts.job.spec.elasticity.min_replicas if facts.job.spec.elasticity else 1
    if not missing or servers or len(left) < least:
        return NOTHING
    end = figures.later(facts.incomplete_since, WAIT_SECONDS)
    if facts.now < end:
        return Verdict(wake_at=end)
    message = f"Going on with {len(left)} workers: {', '.join(sorted(missing))} did not come within {WAIT_SECONDS} s."
    absent = tuple(slot.key for slot in facts.wanted if slot.key in missing or slot.key in facts.absent)
    return Verdict(status=dataclasses.replace(facts.status, absent=absent, message=message))


def _grow(facts: Facts) -> Verdict:
    """Grow by all missing workers at once, so that a group does not stop for each; after PARTIAL_SECONDS by a part."""
    absent = facts.left_out
    back = [slot for slot in absent if slot.ready]
    if not back or facts.status.phase != Phase.RUNNING:
        return NOTHING
    due = figures.later(facts.status.running_time or facts.now, PARTIAL_SECONDS)
    if len(back) < len(absent) and facts.now < due:
        return Verdict(wake_at=due)
    return Verdict(
        status=dataclasses.replace(
            facts.status,
            absent=tuple(slot.key for slot in absent if not slot.ready),
            attempt=facts.status.attempt + 1,
            phase=Phase.RESIZING,
            message=f"Resizing: {', '.join(slot.key for slot in back)} can take part again.",
        )
    )
