"""Derive the events of a status that is written: each tells a difference between the old status and the new one.

They are posted after the write, so no event tells of what did not happen; a crash between the two loses an event, not a
fact.
"""

from trainmaster.api.states import TERMINAL, Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.report import conditions, saving, stragglers
from trainmaster.core.situation import ahead, edits, measures, obstacles, parting, sidecars
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.actions import PostEvent

_QUIET_REASONS = frozenset({conditions.WAITING, "JobEnded", "AllReplicasReady"})


def between(facts: Facts, new: TrainingJobStatus) -> tuple[PostEvent, ...]:
    """Return the events of this step, oldest first."""
    old = facts.job.status
    told = [_unsupported(old, new), _rewound(old, new), _obstacle(old, new)]
    told += [_replaced(facts, new), _alone(old, new), _phase(old, new)]
    told += [_vanishing(old, new), _no_figure(old, new)]
    told += [_stepped_in(old, new), _straggling(old, new), _unsaved(old, new), _edited(old, new), _kept(old, new)]
    return tuple(event for event in told if event is not None)


def _phase(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    if _restarts(old, new):
        return PostEvent("Warning", "Restarting", f"Attempt {new.attempt}: {new.message}")
    if old.phase == new.phase:
        return None
    if new.phase in TERMINAL:
        kind = "Normal" if new.phase == Phase.SUCCEEDED else "Warning"
        return PostEvent(kind, new.reason or new.phase, new.message or "")
    if new.phase in (Phase.SUSPENDED, Phase.RESIZING) or _goes_on(new):
        return PostEvent("Normal", new.phase, new.message or "")
    return None


def _goes_on(new: TrainingJobStatus) -> bool:
    """Return whether training goes on after attempt 1. The first start is expected: phase and condition show it."""
    return new.phase == Phase.RUNNING and new.attempt > 1


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
    before, after = _ready(old), _ready(new)
    if after is None or after[0] in _QUIET_REASONS or before == after:
        return None
    return PostEvent("Normal" if after[0] in obstacles.LIKELY_WELL else "Warning", *after)


def _ready(status: TrainingJobStatus) -> tuple[str, str] | None:
    found = (c for c in status.conditions if c.type == conditions.REPLICAS_READY and c.status == "False")
    return next(((condition.reason, condition.message) for condition in found), None)


def _straggling(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    def slow(status: TrainingJobStatus) -> tuple[str, str] | None:
        found = (c for c in status.conditions if c.type == stragglers.STRAGGLING and c.status == "True")
        return next(((condition.reason, condition.message) for condition in found), None)

    before, after = slow(old), slow(new)
    return PostEvent("Warning", *after) if after and (before is None or before[0] != after[0]) else None


def _unsaved(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event for saves that begin to fail."""

    def failing(status: TrainingJobStatus) -> str:
        found = (c for c in status.conditions if c.type == saving.CHECKPOINT_SAVING and c.status == "False")
        return next((condition.message for condition in found), "")

    return PostEvent("Warning", "CheckpointNotSaved", failing(new)) if failing(new) and not failing(old) else None


def _edited(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of a change that pods which train have not taken yet, or that came too late."""

    def waits(status: TrainingJobStatus) -> str:
        found = (c for c in status.conditions if c.type == edits.SPEC_CHANGED)
        return next((c.message for c in found if c.status == "True" or c.reason == edits.JOB_ENDED), "")

    told = waits(new)
    return PostEvent("Normal", edits.SPEC_CHANGED, told) if told and told != waits(old) else None


def _kept(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of pods that a sidecar keeps after the end, and that will be deleted with their logs."""

    def stated(status: TrainingJobStatus) -> str:
        found = (c for c in status.conditions if c.type == sidecars.SIDECARS_ENDED and c.status == "False")
        return next((condition.message for condition in found), "")

    return PostEvent("Warning", sidecars.STILL_RUNNING, stated(new)) if stated(new) and not stated(old) else None


def _no_figure(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of an evaluation whose figure is no number, where that of the one before was one."""

    def stated(status: TrainingJobStatus) -> str:
        found = (c for c in status.conditions if c.type == measures.FIGURES_FINITE and c.status == "False")
        return next((condition.message for condition in found), "")

    return PostEvent("Warning", measures.NOT_FINITE, stated(new)) if stated(new) and not stated(old) else None


def _vanishing(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event, once, that nothing keeps the model beyond the pods."""

    def stated(status: TrainingJobStatus) -> str:
        found = (c for c in status.conditions if c.type == parting.CHECKPOINT_STORAGE and c.status == "False")
        return next((condition.message for condition in found), "")

    return PostEvent("Warning", "ModelNotKept", stated(new)) if stated(new) and not stated(old) else None


def _unsupported(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    had = any(condition.type == conditions.NOT_YET_SUPPORTED for condition in old.conditions)
    now = next((c for c in new.conditions if c.type == conditions.NOT_YET_SUPPORTED), None)
    return PostEvent("Warning", now.type, now.message) if now and not had else None
