"""Derive the events of a status that is written: each tells a difference between the old status and the new one.

They are posted after the write, so no event tells of what did not happen; a crash between the two loses an event, not a
fact.
"""

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.status import Condition, TrainingJobStatus
from trainmaster.core.report import conditions, saving, stragglers
from trainmaster.core.situation import ahead, edits, lost_with_pods, measures, obstacles, sidecars
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.actions import PostEvent

_Stated = dict[tuple[str, str], Condition]  # by type and status
_QUIET_REASONS = frozenset({conditions.WAITING, "JobEnded", "AllReplicasReady", Phase.SUSPENDED})
# Conditions of which a user is told once when they begin to have this status: the event's kind and reason.
_TOLD_ONCE = (
    (conditions.NOT_YET_SUPPORTED, "True", "Warning", conditions.NOT_YET_SUPPORTED),
    (lost_with_pods.CHECKPOINT_STORAGE, "False", "Warning", "ModelNotKept"),  # nothing keeps the model beyond the pods
    (measures.FIGURES_FINITE, "False", "Warning", measures.NOT_FINITE),
    (measures.FIGURES_REPORTED, "False", "Warning", measures.NOT_REPORTED),
    (saving.CHECKPOINT_SAVING, "False", "Warning", "CheckpointNotSaved"),
    (sidecars.SIDECARS_ENDED, "False", "Warning", sidecars.STILL_RUNNING),  # pods will be deleted with their logs
)


def between(facts: Facts, new: TrainingJobStatus) -> tuple[PostEvent, ...]:
    """Return the events of this step, oldest first."""
    old, message = facts.job.status, new.message or ""
    told: list[PostEvent | None] = []
    restarts = new.phase == Phase.RESTARTING and new.attempt != old.attempt
    # Agents or pods were ahead of the status: nothing was begun and no replica was made.
    attempt_rose = old.phase == new.phase and new.attempt > max(old.attempt, 1)
    rewound = attempt_rose or (old.message != message and message.startswith(ahead.EDITED))
    if rewound and not restarts:
        told.append(PostEvent("Warning", "StatusRestored", message))
    before: _Stated = {(one.type, one.status): one for one in old.conditions}
    after: _Stated = {(one.type, one.status): one for one in new.conditions}
    told.append(_obstacle(before, after))
    if restarts:  # it covers what becomes of replicas
        told.append(PostEvent("Warning", "Restarting", f"Attempt {new.attempt}: {new.message}"))
    else:
        told += [None if rewound else _of_replicas(facts, new), _of_phase(old, new)]
    for stated, value, kind, reason in _TOLD_ONCE:
        if (stated, value) in after and (stated, value) not in before:
            told.append(PostEvent(kind, reason, after[stated, value].message))
    was_slow, slow = (stated.get((stragglers.STRAGGLING, "True")) for stated in (before, after))
    if slow and (was_slow is None or was_slow.reason != slow.reason):
        told.append(PostEvent("Warning", slow.reason, slow.message))
    # A change of the spec that pods which train have not taken yet, or that came too late.
    earlier, edited = (
        [
            one.message
            for one in status.conditions
            if one.type == edits.SPEC_CHANGED and (one.status == "True" or one.reason == edits.JOB_ENDED)
        ]
        for status in (old, new)
    )
    if edited and edited != earlier:
        told.append(PostEvent("Normal", edits.SPEC_CHANGED, edited[0]))
    return tuple(event for event in told if event is not None)


def _of_phase(old: TrainingJobStatus, new: TrainingJobStatus) -> PostEvent | None:
    if old.phase == new.phase:
        return None
    if new.phase in TERMINAL:
        kind = "Normal" if new.phase == Phase.SUCCEEDED else "Warning"
        return PostEvent(kind, new.reason or new.phase, new.message or "")
    # The first start is expected: phase and condition show it.
    if new.phase in (Phase.SUSPENDED, Phase.RESIZING) or (new.phase == Phase.RUNNING and new.attempt > 1):
        return PostEvent("Normal", new.phase, new.message or "")
    return None


def _of_replicas(facts: Facts, new: TrainingJobStatus) -> PostEvent | None:
    """Return the event of replicas that are made anew, of a member that starts again, or of a spare that steps in."""
    old, message = facts.job.status, new.message or ""
    if old.incarnations != new.incarnations:
        changed = [key for key, number in new.incarnations.items() if old.incarnations.get(key, 0) != number]
        if not changed or new.phase in TERMINAL:  # no replica is made for a job that has ended
            return None
        reason = "ReplicaReplaced"
        if all(key in new.done for key in changed):  # nor for a worker that is done
            reason = "WorkerFinished"
        elif all(facts.regime.has_dismissed(key) for key in changed):
            reason = "MemberDismissed"
        return PostEvent("Normal", reason, message or ", ".join(changed))
    if old.phase == new.phase == Phase.RUNNING and old.starts != new.starts:  # a member, while the others train
        again = any(new.starts.get(key, 0) > start for key, start in old.starts.items())
        kind = ("Warning", "MemberRestarted") if again else ("Normal", "MemberJoined")
        return PostEvent(*kind, message or ", ".join(new.starts))
    if old.substitutes != new.substitutes and new.phase != Phase.SUSPENDED:  # in for a worker that has not come
        return PostEvent("Normal", "SpareSteppedIn", message)
    return None


def _obstacle(old: _Stated, new: _Stated) -> PostEvent | None:
    before, after = (stated.get((conditions.REPLICAS_READY, "False")) for stated in (old, new))
    if after is None or after.reason in _QUIET_REASONS:
        return None
    if before and (before.reason, before.message) == (after.reason, after.message):
        return None
    return PostEvent("Normal" if after.reason in obstacles.LIKELY_WELL else "Warning", after.reason, after.message)
