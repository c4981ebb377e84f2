"""`spec.elasticity`: train on with the workers that are there, within bounds, and with all again when they are back.

A worker that has not come for WAIT_SECONDS is done without, as long as `minReplicas` are there; its pod stays wanted.
When all who were missed are there again, the group grows: a new attempt that costs no budget, before which ranks save.
So it does, at most every PARTIAL_SECONDS, with those of them who are there.
Where members come and go one by one, this is about the start only; later whoever is there takes part.
"""

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import figures, membership, phases
from trainmaster.core.facts import Facts
from trainmaster.core.verdict import NOTHING, Verdict
from trainmaster.wire import names

# How long a group waits for a worker before it goes on without.
WAIT_SECONDS = 60
# So long a group trains before it grows by a part of those whom it misses.
PARTIAL_SECONDS = 600


def fit(facts: Facts) -> Verdict:
    """Shrink a group that waits; grow one that trains."""
    if facts.job.spec.elasticity is None or membership.alone(facts):
        return NOTHING
    replaced = _replaced(facts)
    if replaced is not None:
        return Verdict(status=replaced)
    return _shrink(facts) if facts.status.phase in phases.GATHERING else _grow(facts)


def _replaced(facts: Facts) -> TrainingJobStatus | None:
    """Who is missed and whose replica has ended needs another one; nobody trains with it, so nothing else changes."""
    ended = [slot for slot in facts.left_out if slot.replica and not slot.replica.alive]
    if not ended:
        return None
    return facts.status.model_copy(update={"incarnations": facts.replacing(ended)})


def _shrink(facts: Facts) -> Verdict:
    """Nobody has been told to run yet, so the group that gathers simply changes; who has come meanwhile takes part."""
    back = {slot.key for slot in facts.left_out if slot.ready}
    if back:
        absent = tuple(key for key in facts.status.absent if key not in back)
        return Verdict(status=facts.status.model_copy(update={"absent": absent}))
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
    return Verdict(status=facts.status.model_copy(update={"absent": absent, "message": message}))


def _grow(facts: Facts) -> Verdict:
    """All at once, so that a group does not stop for each of them; in time also without who does not come at all."""
    absent = facts.left_out
    back = [slot for slot in absent if slot.ready]
    if not back or facts.status.phase != phases.RUNNING:
        return NOTHING
    due = figures.later(facts.status.running_time or facts.now, PARTIAL_SECONDS)
    if len(back) < len(absent) and facts.now < due:
        return Verdict(wake_at=due)
    update = {
        "absent": tuple(slot.key for slot in absent if not slot.ready),
        "attempt": facts.status.attempt + 1,
        "phase": phases.RESIZING,
        "message": f"Resizing: {', '.join(slot.key for slot in back)} can take part again.",
    }
    return Verdict(status=facts.status.model_copy(update=update))
