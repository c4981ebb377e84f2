"""Build the status that users see: phase, conditions, progress, newest checkpoint, what a restart cost.

It reports what was last observed. What changes at every step or with every agent that reports (progress, counts,
missing replicas) is refreshed every few seconds, so that a thousand jobs do not keep the API server busy; what matters
is written at once. A group that gathers for minutes is refreshed by thirds (decision 0176). After the end nothing
changes any more.
"""

import dataclasses
from datetime import datetime

from trainmaster.api.job_states import Phase
from trainmaster.api.status import ReplicaStatus, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import ledger, resumption
from trainmaster.core.regime import beginning
from trainmaster.core.report import conditions, goodput, history, kept_lines
from trainmaster.core.report.job_progress import code_of, progress
from trainmaster.core.situation import lost_with_pods, obstacles
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases
from trainmaster.wire import names

REFRESH_SECONDS = 5
GATHERING_REFRESH_SECONDS = 120  # where fewer than a third of the replicas have come or gone since the last write


def describe(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    """Return `status` with everything in it that follows from the facts.

    Its fields are clipped and rounded as they are set, so that it equals what is read back.
    """
    phase = _phase(facts, status)
    # What agents say after the end closes nothing: an ended job does not change.
    goes_on = phase in (Phase.RUNNING, Phase.SUCCEEDED) and not facts.status.finished
    wrong = next((one for one in facts.status.conditions if one.type == conditions.INVALID_SPEC), None)
    # Workers that had finished still count in the same attempt, while it runs.
    same_try = status.attempt == facts.status.attempt and phase in (Phase.STARTING, Phase.RUNNING)
    # The checkpoint of an attempt has to be older than this step; an attempt inherits it.
    before = status.resume_before if status.attempt == facts.status.attempt else resumption.still_before(facts)
    failed = status.restarts[-1] if status.restarts and status.restarts != facts.status.restarts else None
    if failed and failed.attempt < status.attempt:
        before = failed.resume_before  # of the failure that this attempt follows, as it is known now
    corrected = wrong is not None and status.message == wrong.message and not facts.status.finished
    described = dataclasses.replace(
        status,
        phase=phase,
        observed_generation=facts.job.metadata.generation,
        conditions=conditions.current_conditions(facts, status, phase),
        restarts=facts.regime.with_costs(status, phase) if goes_on else status.restarts,
        resume_before=before,
        done=status.done if same_try else (),
        code=code_of(facts.job),
        last_lines=kept_lines.kept_lines(facts, status),
        message="The spec was corrected; the job goes on." if corrected else status.message,
    )
    described = _started(facts, facts.regime.written(described))
    due = _refresh_time(facts, facts.status)
    if not facts.status.finished and (described != facts.status or due is None or facts.now >= due):
        refreshed = _refreshed(facts, described, tuple(sorted(facts.done)) if same_try else ())
        described = refreshed if _differ(refreshed, facts.status) else facts.status
    if described == facts.status or facts.status.finished:
        return described
    return dataclasses.replace(described, goodput=goodput.current_goodput(facts, described))


def _refreshed(facts: Facts, status: TrainingJobStatus, done: tuple[str, ...]) -> TrainingJobStatus:
    """Return the status with its slow part as it is now. With any other change it is written anyway."""
    reached = progress(facts, status)
    waits = status.phase == Phase.PENDING and facts.status.phase == Phase.PENDING
    waits = waits and status.incarnations == facts.status.incarnations  # else the reason of a replacement is said first
    return dataclasses.replace(
        status,
        progress=reached,
        history=history.extended_history(status, reached),
        evaluations=history.evaluations(status, reached),
        checkpoint=facts.checkpoint,
        replicas=_replicas(facts, status, names.WORKER),
        parameter_servers=_replicas(facts, status, names.PARAMETER_SERVER) if facts.job.spec.servers else None,
        message=(obstacles.waiting_for(facts) if waits else "") or status.message,
        done=done,
    )


def holds_back(facts: Facts, status: TrainingJobStatus) -> bool:
    """Return whether a new job's first status can wait: a group that gathers as it should is there in a moment.

    Until then users see the CRD's default, Pending.
    """
    until = _held_back_until(facts)
    if until is None or facts.now >= until or status.phase != Phase.PENDING:
        return False
    # Quiet are conditions that say only that replicas are waited for, as at every beginning.
    always = (conditions.SPARES_READY, lost_with_pods.CHECKPOINT_STORAGE)
    told = {condition.type: condition.reason for condition in status.conditions if condition.type not in always}
    return told == {conditions.REPLICAS_READY: conditions.WAITING, conditions.TRAINING: Phase.PENDING}


def _held_back_until(facts: Facts) -> datetime | None:
    """Return until when the first status may wait; None where one was written, or the creation time is implausible."""
    created = figures.rfc3339(facts.job.metadata.creation_timestamp)
    if created is None or created > facts.now or facts.job.status != TrainingJobStatus():
        return None
    return figures.later(created, REFRESH_SECONDS)


def next_refresh(facts: Facts, status: TrainingJobStatus) -> datetime | None:
    """Return when to look again for what agents report without waking the loop: steps, and what was held back."""
    if not status.attempt:
        return _held_back_until(facts)
    due = None if status.finished else _refresh_time(facts, status)
    if due is None:
        return None
    if status.phase not in (Phase.PENDING, Phase.SUSPENDED):
        regular = figures.later(facts.now, min(REFRESH_SECONDS, facts.observed.refresh_seconds))
        return regular if due <= facts.now else due if status.phase == Phase.RUNNING else min(due, regular)
    is_behind = _differ(_refreshed(facts, status, status.done), status)
    return due if due > facts.now and is_behind else None


def _phase(facts: Facts, status: TrainingJobStatus) -> Phase:
    """Return the phase after at most one forward step; rules take all other steps."""
    if status.phase != facts.status.phase or status.attempt != facts.status.attempt:
        return status.phase
    if (status.incarnations, status.absent) != (facts.status.incarnations, facts.status.absent):
        return status.phase  # the replicas that the facts speak of are not those to come
    # The order to run is given as soon as this phase is written.
    may_run = facts.regime.roster is not None and not ledger.undecided(facts.status)
    if not may_run or beginning.held_until(facts):
        return status.phase
    if status.phase in phases.GATHERING:
        return Phase.STARTING
    return Phase.RUNNING if status.phase == Phase.STARTING and facts.regime.has_begun() else status.phase


def _started(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    """Return it with what is said once, when training begins or goes on. Until then the reason of a restart stays."""
    count = len(facts.slots)
    who = f"{count} replica{'' if count == 1 else 's'}"
    if status.phase == Phase.STARTING and facts.status.phase == Phase.PENDING:
        return dataclasses.replace(status, message=f"Attempt {status.attempt} starts on {who}; no step yet.")
    if not conditions.trains(status) or conditions.trains(facts.status):
        return status
    return dataclasses.replace(status, running_time=facts.now, message=f"Attempt {status.attempt} trains on {who}.")


def _replicas(facts: Facts, status: TrainingJobStatus, role: str) -> ReplicaStatus:
    slots = [slot for slot in facts.wanted if slot.role == role]
    ready = 0 if status.finished else sum(1 for slot in slots if slot.ready)
    selector = f"{names.LABEL_JOB}={facts.job.name},{names.LABEL_ROLE}={role}"
    beside = facts.spares if role == names.WORKER else ()
    spares = sum(slot.ready for slot in beside) if beside and not status.finished else None
    done = len(slots) if status.phase == Phase.SUCCEEDED else None
    return ReplicaStatus(ready=ready, desired=len(slots), selector=selector, spares=spares, done=done)


def _refresh_time(facts: Facts, status: TrainingJobStatus) -> datetime | None:
    """Return when what was written of the slow part is too old; None where nothing was written.

    Where the end is expected shortly after, its write replaces this one.
    """
    if status.progress is None or status.progress.time is None:
        return None
    if status.phase == Phase.SUSPENDED:  # the last words of ranks that leave: their pods may be gone at the next look
        saved, known = (one.step if one else 0 for one in (facts.checkpoint, status.checkpoint))
        if saved > known or progress(facts, status).step > status.progress.step:
            return facts.now
    seconds = facts.observed.refresh_seconds if status.phase == Phase.RUNNING else REFRESH_SECONDS
    if status.phase in phases.GATHERING:
        written = {names.WORKER: status.replicas, names.PARAMETER_SERVER: status.parameter_servers}
        now = {role: _replicas(facts, status, role) for role, before in written.items() if before}
        many_have_come_or_gone = any(  # a third of a role, since it was written
            before is not None and 3 * abs(now[role].ready - before.ready) >= max(1, now[role].desired)
            for role, before in written.items()
        )
        seconds = REFRESH_SECONDS if many_have_come_or_gone else GATHERING_REFRESH_SECONDS
    due = figures.later(status.progress.time, seconds)
    late = figures.later(due, min(seconds, REFRESH_SECONDS))
    left = figures.length(status.progress.eta)
    return late if left is not None and figures.later(status.progress.time, left) <= late else due


def _differ(new: TrainingJobStatus, old: TrainingJobStatus) -> bool:
    """Return whether there is news beside the time at which the progress was looked at."""
    if new.progress and old.progress:
        return dataclasses.replace(new, progress=dataclasses.replace(new.progress, time=old.progress.time)) != old
    return new != old
