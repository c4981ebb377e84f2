"""State the condition SpecChanged: a change of the spec that training pods have not taken yet, and when they will.

The rule that recreates pods is rules/revised.py.
"""

from collections.abc import Sequence

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.core.situation import revision
from trainmaster.core.situation.facts import Facts, Statement
from trainmaster.core.situation.slots import Slot

SPEC_CHANGED = "SpecChanged"
NEXT_ATTEMPT, TAKEN, JOB_ENDED = "NextAttempt", "Taken", "JobEnded"

_NAMED = 4  # at most so many fields or replicas are named in a sentence


def statement(facts: Facts, attempt: int, phase: Phase) -> Statement | None:
    """Return what holds now; None where no pod was ever of an older spec while it trained."""
    before = next((one for one in facts.status.conditions if one.type == SPEC_CHANGED), None)
    if phase in TERMINAL:
        if before is None or before.status != "True":
            return (SPEC_CHANGED, False, before.reason, before.message) if before else None
        message = "The job ended before the change could take effect. Create another job, with checkpoint.resumeFrom."
        return SPEC_CHANGED, False, JOB_ENDED, message
    stale = [slot for slot in facts.slots if slot.stale] if phase != Phase.SUSPENDED else []
    begun = phase in (Phase.STARTING, Phase.RUNNING)
    if not stale or not (begun or before):
        return (SPEC_CHANGED, False, TAKEN, "All pods are made of the present spec.") if before else None
    what = f"{named(facts, stale)} changed"
    if not begun:
        message = f"{what}: attempt {attempt} begins with pods that are all made anew."
        return SPEC_CHANGED, True, NEXT_ATTEMPT, message
    message = (
        f"{what} after attempt {attempt} had begun. All pods take it together, at the next attempt: after "
        "a failure, a change of size or a suspension. To have it now, set spec.suspend to true and, once the phase is "
        "Suspended, to false again."
    )
    keeps_its_own = facts.job.spec.training.command and facts.checkpoint is None
    if not facts.job.spec.checkpoint.storage and not keeps_its_own:  # new pods lose what is inside the old ones
        message += (
            " As checkpoint.storage is unset, the checkpoints go with the pods, and training begins at step 0 then; to "
            "keep what is trained, take the change back."
        )
    return SPEC_CHANGED, True, NEXT_ATTEMPT, message


def named(facts: Facts, slots: Sequence[Slot]) -> str:
    """Return the fields in which the spec differs from what these slots' replicas were made of."""
    told = {(slot.replica.revision, slot.role) for slot in slots if slot.replica}
    fields = {field for old, role in told for field in revision.changed(old, facts.revisions[role])}
    return listed(sorted(fields))


def listed(words: Sequence[str]) -> str:
    """Return the first few words, and how many there are more."""
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more
