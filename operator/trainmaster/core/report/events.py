"""Derive the events of a status that is written: each tells a difference between the old status and the new one.

They are posted after the write, so no event tells of what did not happen; a crash between the two loses an event, not a
fact.
"""

from trainmaster.api.states import TERMINAL, Phase
from trainmaster.api.status import Condition, TrainingJobStatus
from trainmaster.core.report import conditions, saving, stragglers
from trainmaster.core.situation import ahead, edits, measures, obstacles, parting, sidecars
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.actions import PostEvent

_QUIET_REASONS = frozenset({conditions.WAITING, "JobEnded", "AllReplicasReady"})
# Conditions of which a user is told once when they begin to have this status: the event's kind and reason.
_TOLD_ONCE = (
    (conditions.NOT_YET_SUPPORTED, "True", "Warning", conditions.NOT_YET_SUPPORTED),
    (parting.CHECKPOINT_STORAGE, "False", "Warning", "ModelNotKept"),  # nothing keeps the model beyond the pods
    (measures.FIGURES_FINITE, "False", "Warning", measures.NOT_FINITE),
    (measures.FIGURES_REPORTED, "False", "Warning", measures.NOT_REPORTED),
    (saving.CHECKPOINT_SAVING, "False", "Warning", "CheckpointNotSaved"),
    (sidecars.SIDECARS_ENDED, "False", "Warning", sidecars.STILL_RUNNING),  # pods will be deleted with their logs
)


def between(facts: Facts, new: TrainingJobStatus) -> tuple[PostEvent, ...]:
    """Return the events of this step, oldest first."""
    old = facts.job.status
    told = [_rewound(old, new), _obstacle(old, new), _replaced(facts, new), _alone(old, new), _phase(old, new)]
    told += [
        PostEvent(kind, reason, begun.message)
        for stated, value, kind, reason in _TOLD_ONCE
        if (begun := _stated(new, stated, value)) and not _stated(old, stated, value)
    ]
    told += [_stepped_in(old, new), _straggling(old, new), _edited(old, new)]
    return tuple(event for event in told if event is not None)


def _stated(status: TrainingJobStatus, kind: str, value: str) -> Condition | None:
    return next((one for one in status.conditions if (one.type, one.status) == (kind, value)), None)


def _phase(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    if _restarts(old, new):
        return PostEvent("Warning", "Restarting", f"Attempt {new.attempt}: {new.message}")
    if old.phase == new.phase:
        return None
    if new.phase in TERMINAL:
        kind = "Normal" if new.phase == Phase.SUCCEEDED else "Warning"
        return PostEvent(kind, new.reason or new.phase, new.message or "")
    # The first start is expected: phase and condition show it.
    if new.phase in (Phase.SUSPENDED, Phase.RESIZING) or (new.phase == Phase.RUNNING and new.attempt > 1):
        return PostEvent("Normal", new.phase, new.message or "")
    return None


def _restarts(old: TrainingJobStatus, new: TrainingJobStatus) -> bool:
    return new.phase == Phase.RESTARTING and new.attempt != old.attempt


def _rewound(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of a status that agents or pods were ahead of: nothing was begun and no replica was made."""
    attempt_rose = old.phase == new.phase and new.attempt > max(old.attempt, 1)
    says_so = old.message != new.message and (new.message or "").startswith(ahead.EDITED)
    if _restarts(old, new) or not (attempt_rose or says_so):
        return None
    return PostEvent("Warning", "StatusRestored", new.message or "")


def _replaced(facts: Facts, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of a new incarnation; None where there is none, or the event of a restart covers it.

    No replica is made for a job that has ended, for a worker that is done, or for a member that is not wanted.
    """
    old = facts.job.status
    changed = [key for key, number in new.incarnations.items() if old.incarnations.get(key, 0) != number]
    if not changed or _restarts(old, new) or _rewound(old, new) or new.phase in TERMINAL:
        return None
    reason = "ReplicaReplaced"
    if all(key in new.done for key in changed):
        reason = "WorkerFinished"
    elif all(facts.regime.has_dismissed(key) for key in changed):
        reason = "MemberDismissed"
    return PostEvent("Normal", reason, new.message or ", ".join(changed))


def _stepped_in(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of a spare that took the place of a worker that has not come (for a lost one: `_replaced`)."""
    if old.substitutes == new.substitutes or old.incarnations != new.incarnations or new.phase == Phase.SUSPENDED:
        return None
    return None if _restarts(old, new) else PostEvent("Normal", "SpareSteppedIn", new.message or "")


def _alone(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of a member that starts again or joins while others train. `_replaced` tells of a new pod."""
    if old.phase != Phase.RUNNING or new.phase != Phase.RUNNING or old.starts == new.starts:
        return None
    if old.incarnations != new.incarnations:
        return None
    again = any(new.starts.get(key, 0) > start for key, start in old.starts.items())
    kind = ("Warning", "MemberRestarted") if again else ("Normal", "MemberJoined")
    return PostEvent(*kind, new.message or ", ".join(new.starts))


def _obstacle(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    before, after = (_stated(status, conditions.REPLICAS_READY, "False") for status in (old, new))
    if after is None or after.reason in _QUIET_REASONS:
        return None
    if before and (before.reason, before.message) == (after.reason, after.message):
        return None
    return PostEvent("Normal" if after.reason in obstacles.LIKELY_WELL else "Warning", after.reason, after.message)


def _straggling(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    before, after = (_stated(status, stragglers.STRAGGLING, "True") for status in (old, new))
    if after is None or (before and before.reason == after.reason):
        return None
    return PostEvent("Warning", after.reason, after.message)


def _edited(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of a change that pods which train have not taken yet, or that came too late."""

    def waits(status: TrainingJobStatus) -> str:
        found = (one for one in status.conditions if one.type == edits.SPEC_CHANGED)
        return next((one.message for one in found if one.status == "True" or one.reason == edits.JOB_ENDED), "")

    told = waits(new)
    return PostEvent("Normal", edits.SPEC_CHANGED, told) if told and told != waits(old) else None
