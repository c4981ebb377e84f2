"""Build the status that users see: phase, conditions, progress, newest checkpoint, what a restart cost.

It reports what was last observed. What changes at every step or with every agent that reports (progress, counts,
missing replicas) is refreshed every few seconds, so that a thousand jobs do not keep the API server busy; what matters
is written at once. A group that gathers for minutes is refreshed by thirds (decision 0176). After the end nothing
changes any more.
"""

import dataclasses
from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.code import CodeUrl
from trainmaster.api.states import Phase
from trainmaster.api.status import CodeStatus, Progress, ReplicaStatus, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import resumption
from trainmaster.core.regime import beginning
from trainmaster.core.report import conditions, goodput, history, waits
from trainmaster.core.situation import measures, obstacles
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.wire import messages, names
from trainmaster.wire.states import AgentState

REFRESH_SECONDS = 5
TRAINING_REFRESH_SECONDS = 10  # often enough for `kubectl get -w`, seldom enough for a thousand jobs
GATHERING_REFRESH_SECONDS = 120  # where fewer than a third of the replicas have come or gone since the last write


def describe(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    """Return `status` with everything in it that follows from the facts.

    Its fields are clipped and rounded as they are set, so that it equals what is read back.
    """
    told = _told(facts, status)
    if told == facts.status or facts.status.finished:
        return told
    return dataclasses.replace(told, goodput=goodput.of(facts, told))


def _told(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    phase = _phase(facts, status)
    # What agents say after the end closes nothing: an ended job does not change.
    goes_on = phase in (Phase.RUNNING, Phase.SUCCEEDED) and not facts.status.finished
    stated = conditions.of(facts, status, phase)
    described = dataclasses.replace(
        status,
        phase=phase,
        observed_generation=facts.job.generation,
        conditions=stated,
        restarts=facts.regime.with_costs(status, phase) if goes_on else status.restarts,
        resume_before=resumption.resume_before(facts, status),
        done=status.done if _same_try(facts, status, phase) else (),
        code=_code(facts),
        message=_not_about_an_older_spec(facts, status),
    )
    described = _started(facts, facts.regime.written(described))
    if facts.status.finished or (described == facts.status and not _due(facts)):
        return described
    refreshed = _refreshed(facts, described)
    return facts.status if _timeless(refreshed) == _timeless(facts.status) else refreshed


def _code(facts: Facts) -> CodeStatus | None:
    """Return what the spec says of the code that is brought into each pod."""
    code = facts.job.spec.training.code
    if code is None:
        return None
    if code.git:
        return CodeStatus(commit=code.git.commit, dirty=False, source=code.git.repository)
    if code.image:
        return CodeStatus(sha256=code.image.reference.rpartition(":")[2], source=code.image.reference)
    sent = code.bundle or code.url
    if sent is None:
        return None
    dirty = sent.dirty if sent.commit else None
    return CodeStatus(sha256=sent.sha256, commit=sent.commit, dirty=dirty, source=_address(code.url))


def _address(url: CodeUrl | None) -> str | None:
    """Return the address without its query, in which a signature may stand."""
    return url.address.partition("?")[0] if url else None


def _refreshed(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    """Return the status with its slow part as it is now."""
    reached = progress(facts, status)
    return dataclasses.replace(
        status,
        progress=reached,
        history=history.of(status, reached),
        evaluations=history.evaluations(status, reached),
        checkpoint=facts.checkpoint,
        replicas=_replicas(facts, status, names.WORKER),
        parameter_servers=_replicas(facts, status, names.PARAMETER_SERVER) if facts.job.spec.servers else None,
        message=_waiting(facts, status) or status.message,
        done=tuple(sorted(facts.done)) if _same_try(facts, status, status.phase) else (),
    )


def _same_try(facts: Facts, status: TrainingJobStatus, phase: Phase) -> bool:
    """Return whether the workers that had finished still count: in the same attempt, while it runs."""
    return status.attempt == facts.status.attempt and phase in (Phase.STARTING, Phase.RUNNING)


def holds_back(facts: Facts, status: TrainingJobStatus) -> bool:
    """Return whether a new job's first status can wait: a group that gathers as it should is there in a moment.

    Until then users see the CRD's default, Pending.
    """
    until = _held_back_until(facts)
    return until is not None and facts.now < until and status.phase == Phase.PENDING and conditions.quiet(status)


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
        regular = figures.later(facts.now, REFRESH_SECONDS)
        return regular if due <= facts.now else due if status.phase == Phase.RUNNING else min(due, regular)
    is_behind = _timeless(_refreshed(facts, status)) != _timeless(status)
    return due if due > facts.now and is_behind else None


def _phase(facts: Facts, status: TrainingJobStatus) -> Phase:
    """Return the phase after at most one forward step; rules take all other steps."""
    if status.phase != facts.status.phase or status.attempt != facts.status.attempt:
        return status.phase
    if (status.incarnations, status.absent) != (facts.status.incarnations, facts.status.absent):
        return status.phase  # the replicas that the facts speak of are not those to come
    if beginning.may_run(facts):
        if status.phase in phases.GATHERING:
            return Phase.STARTING
        return Phase.RUNNING if status.phase == Phase.STARTING and facts.regime.has_begun() else status.phase
    return status.phase


def _ranks(slot: Slot) -> tuple[messages.RankProgress, ...]:
    return slot.heartbeat.ranks if slot.heartbeat else ()


def _not_about_an_older_spec(facts: Facts, status: TrainingJobStatus) -> str | None:
    """Return the message; another one where it is about a spec that could not be followed, and now can."""
    wrong = next((one for one in facts.status.conditions if one.type == conditions.INVALID_SPEC), None)
    if wrong is None or status.message != wrong.message or facts.status.finished:
        return status.message
    return "The spec was corrected; the job goes on."


def _started(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    """Return it with what is said once, when training begins or goes on. Until then the reason of a restart stays."""
    who = f"{len(facts.slots)} replicas"
    if status.phase == Phase.STARTING and facts.status.phase == Phase.PENDING:
        return dataclasses.replace(status, message=f"Attempt {status.attempt} starts on {who}; no step yet.")
    if not conditions.trains(status) or conditions.trains(facts.status):
        return status
    return dataclasses.replace(status, running_time=facts.now, message=f"Attempt {status.attempt} trains on {who}.")


def _waiting(facts: Facts, status: TrainingJobStatus) -> str:
    waits = status.phase == Phase.PENDING and facts.status.phase == Phase.PENDING
    waits = waits and status.incarnations == facts.status.incarnations  # else the reason of a replacement is said first
    return obstacles.waiting_for(facts) if waits else ""


def progress(facts: Facts, status: TrainingJobStatus) -> Progress:
    """Return how far the workers are now."""
    before = facts.status.progress or Progress()
    told = [rank for slot in _speaking(facts) for rank in _ranks(slot) if slot.role == names.WORKER]
    ranks = sorted(facts.regime.heard(told), key=lambda rank: rank.rank)
    total = _total(facts, ranks, before)
    if not ranks or ranks[0].phase == "load":
        return dataclasses.replace(before, total_steps=total, eta=None, time=facts.now)
    step = figures.count(ranks[0].step)  # the same rank as for loss and speed: others may have reported earlier
    step = step if total is None else min(step, max(total, facts.resumed_step or 0))  # steps may have been lowered
    seconds = ranks[0].step_seconds
    if facts.job.spec.training.command and ranks[0].resumed_step is None:  # they count from its restart only
        seconds = None
    return Progress(
        step=step,
        total_steps=total,
        loss=ranks[0].loss if ranks[0].loss is not None else before.loss,
        metrics=measures.metrics(facts.ranks, before),
        evaluation=measures.evaluation(facts.ranks, before),
        samples_per_second=ranks[0].samples_per_second,
        waiting=waits.waiting(ranks),
        # Which part of a script's step is input, device or exchange is not known from outside.
        step_times=None if facts.job.spec.training.command else waits.step_times(ranks),
        eta=None if status.finished else _eta(total, step, seconds),
        time=facts.now,
    )


def _speaking(facts: Facts) -> tuple[Slot, ...]:
    return facts.at_attempt(AgentState.RUNNING) + facts.at_attempt(AgentState.FINISHED)


def _total(facts: Facts, ranks: Sequence[messages.RankProgress], before: Progress) -> int | None:
    """Return how many steps there will be: as the spec says, else as the ranks do, in this attempt or before."""
    steps = facts.job.spec.training.steps
    if steps is not None:
        return steps
    told = [figures.count(rank.total_steps) for rank in ranks if rank.total_steps]
    return told[0] if told else before.total_steps


def _eta(total: int | None, step: int, step_seconds: float | None) -> str | None:
    if total is None or step_seconds is None:
        return None
    return figures.duration((total - step) * step_seconds) or None


def _replicas(facts: Facts, status: TrainingJobStatus, role: str) -> ReplicaStatus:
    slots = [slot for slot in facts.wanted if slot.role == role]
    ready = 0 if status.finished else sum(1 for slot in slots if slot.ready)
    selector = f"{names.LABEL_JOB}={facts.job.name},{names.LABEL_ROLE}={role}"
    beside = facts.spares if role == names.WORKER else ()
    spares = sum(slot.ready for slot in beside) if beside and not status.finished else None
    done = len(slots) if status.phase == Phase.SUCCEEDED else None
    return ReplicaStatus(ready=ready, desired=len(slots), selector=selector, spares=spares, done=done)


def _due(facts: Facts) -> bool:
    """Return whether it is time to refresh the slow part. With any other change it is written anyway."""
    due = _refresh_time(facts, facts.status)
    return due is None or facts.now >= due


def _refresh_time(facts: Facts, status: TrainingJobStatus) -> datetime | None:
    """Return when what was written of the slow part is too old; None where nothing was written.

    Where the end is expected shortly after, its write replaces this one.
    """
    written = status.progress.time if status.progress else None
    due = written and figures.later(written, _refresh_seconds(facts, status))
    return figures.later(due, REFRESH_SECONDS) if due and _ends_before(status, due) else due


def _ends_before(status: TrainingJobStatus, due: datetime) -> bool:
    progress = status.progress or Progress()
    left = figures.length(progress.eta)
    if left is None or progress.time is None:
        return False
    return figures.later(progress.time, left) <= figures.later(due, REFRESH_SECONDS)


def _refresh_seconds(facts: Facts, status: TrainingJobStatus) -> int:
    if status.phase == Phase.RUNNING:
        return TRAINING_REFRESH_SECONDS
    gathers_slowly = status.phase in phases.GATHERING and not _many_have_come(facts, status)
    return GATHERING_REFRESH_SECONDS if gathers_slowly else REFRESH_SECONDS


def _many_have_come(facts: Facts, status: TrainingJobStatus) -> bool:
    """Return whether a third of the replicas of a role have become ready, or have gone, since `status` was written."""
    written = {names.WORKER: status.replicas, names.PARAMETER_SERVER: status.parameter_servers}
    now = {role: _replicas(facts, status, role) for role, before in written.items() if before}
    return any(
        before is not None and 3 * abs(now[role].ready - before.ready) >= max(1, now[role].desired)
        for role, before in written.items()
    )


def _timeless(status: TrainingJobStatus) -> TrainingJobStatus:
    progress = dataclasses.replace(status.progress, time=None) if status.progress else None
    return dataclasses.replace(status, progress=progress)
