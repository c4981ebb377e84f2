"""The status that people see: phase, conditions, progress, newest checkpoint, what a restart cost.

A report on what was last observed. What changes at every step (progress, counts) is refreshed at most every
REFRESH_SECONDS, so that a thousand running jobs do not keep the API server busy; what matters is written at once.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from trainmaster.api.status import CheckpointStatus, Progress, ReplicaStatus, TrainingJobStatus
from trainmaster.core import conditions, phases
from trainmaster.core.facts import Facts, Slot
from trainmaster.wire import messages, names

REFRESH_SECONDS = 5


def describe(facts: Facts, status: TrainingJobStatus) -> TrainingJobStatus:
    """`status` with everything in it that follows from the facts."""
    phase = _phase(facts, status)
    described = status.model_copy(
        update={
            "phase": phase,
            "observed_generation": facts.job.generation,
            "conditions": conditions.of(facts, status, phase),
            "restarts": _with_cost(facts, status, phase),
            "message": _message(facts, status, phase),
            **_running_time(facts, status, phase),
        }
    )
    fresh = {"progress": _progress(facts, described), "checkpoint": _checkpoint(facts), "replicas": _replicas(facts)}
    return described.model_copy(update=fresh) if _due(facts, described, fresh) else described


def next_progress(facts: Facts) -> datetime | None:
    """When the slow part of the status may be written again, for a job that trains."""
    progress = facts.status.progress
    if facts.status.finished or progress is None or progress.time is None:
        return None
    return max(progress.time + timedelta(seconds=REFRESH_SECONDS), facts.now + timedelta(seconds=1))


def _phase(facts: Facts, status: TrainingJobStatus) -> str:
    """The forward steps that need no memory; the others are the rules' affair."""
    if status.phase == phases.PENDING and facts.complete:
        return phases.STARTING
    if status.phase == phases.STARTING and not facts.complete and not facts.attempt_began:
        return phases.PENDING
    if status.phase in (phases.STARTING, phases.RESTARTING, phases.RESIZING) and _all_train(facts, status):
        return phases.RUNNING
    return status.phase


def _all_train(facts: Facts, status: TrainingJobStatus) -> bool:
    """Every agent runs the present attempt, and no rank still loads. A script does not tell: running is enough."""
    if status.attempt != facts.status.attempt:
        return False
    running = facts.at_attempt(messages.RUNNING)
    if len(running) < len(facts.slots):
        return False
    if facts.job.spec.training.command:
        return True
    return all(rank.phase != "load" for slot in running for rank in _ranks(slot))


def _ranks(slot: Slot) -> tuple[messages.RankProgress, ...]:
    return slot.heartbeat.ranks if slot.heartbeat else ()


def _message(facts: Facts, status: TrainingJobStatus, phase: str) -> str | None:
    if phase == phases.RUNNING and facts.status.phase != phases.RUNNING:
        return f"Attempt {status.attempt} trains on {len(facts.slots)} replicas."
    if phase == phases.PENDING and status.phase == phases.PENDING and facts.status.attempt:
        return conditions.waiting_for(facts) or status.message
    return status.message


def _running_time(facts: Facts, status: TrainingJobStatus, phase: str) -> dict[str, datetime]:
    started = phase == phases.RUNNING and facts.status.phase != phases.RUNNING
    return {"running_time": facts.now} if started else {}


def _with_cost(facts: Facts, status: TrainingJobStatus, phase: str) -> tuple[object, ...]:
    """The newest ledger line learns its seconds when training goes on."""
    if phase != phases.RUNNING or not status.restarts or status.restarts[-1].seconds_lost is not None:
        return status.restarts
    last = status.restarts[-1]
    seconds = (facts.now - last.time).total_seconds()
    return (*status.restarts[:-1], last.model_copy(update={"seconds_lost": max(0.0, seconds)}))


def _progress(facts: Facts, status: TrainingJobStatus) -> Progress:
    total = facts.job.spec.training.steps
    ranks = sorted(
        (rank for slot in _speaking(facts) for rank in _ranks(slot) if slot.role == names.WORKER),
        key=lambda rank: rank.rank,
    )
    before = facts.status.progress or Progress()
    if not ranks or ranks[0].phase == "load":
        return before.model_copy(update={"total_steps": total, "eta": None, "time": facts.now})
    step = min(rank.step for rank in ranks)
    return Progress(
        step=step,
        total_steps=total,
        loss=ranks[0].loss if ranks[0].loss is not None else before.loss,
        samples_per_second=ranks[0].samples_per_second,
        eta=None if status.finished else _eta(total, step, ranks[0].step_seconds),
        time=facts.now,
    )


def _speaking(facts: Facts) -> tuple[Slot, ...]:
    return facts.at_attempt(messages.RUNNING) + facts.at_attempt(messages.FINISHED)


def _eta(total: int | None, step: int, step_seconds: float | None) -> str | None:
    if total is None or step_seconds is None:
        return None
    return duration((total - step) * step_seconds)


def duration(seconds: float) -> str:
    """1h20m, 3m05s or 12s: two units are enough."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _checkpoint(facts: Facts) -> CheckpointStatus | None:
    told = [beat.checkpoint for beat in facts.heartbeats() if beat.checkpoint]
    if not told:
        return facts.status.checkpoint
    newest = max(told, key=lambda record: record.step)
    if facts.status.checkpoint and facts.status.checkpoint.step > newest.step:
        return facts.status.checkpoint
    return CheckpointStatus(step=newest.step, time=_time(newest.time), sha256=newest.sha256)


def _time(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None  # an agent's clock, or a lie: the checkpoint itself still counts


def _replicas(facts: Facts) -> ReplicaStatus:
    workers = [slot for slot in facts.slots if slot.role == names.WORKER]
    ready = 0 if facts.status.finished else sum(1 for slot in workers if slot.heartbeat)
    selector = f"{names.LABEL_JOB}={facts.job.name},{names.LABEL_ROLE}={names.WORKER}"
    return ReplicaStatus(ready=ready, desired=len(workers), selector=selector)


def _due(facts: Facts, described: TrainingJobStatus, fresh: Mapping[str, object]) -> bool:
    """Whether the slow part is to be written now: with any other change, or after a while if it changed."""
    old = facts.status
    if old.progress is None or old.progress.time is None or described.phase != old.phase:
        return True
    if facts.now < old.progress.time + timedelta(seconds=REFRESH_SECONDS):
        return False
    timeless = old.model_copy(update={**fresh, "progress": _without_time(fresh["progress"])})
    return timeless != old.model_copy(update={"progress": _without_time(old.progress)})


def _without_time(progress: object) -> object:
    return progress.model_copy(update={"time": None}) if isinstance(progress, Progress) else progress
