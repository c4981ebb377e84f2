"""Tell how far a job is, and which code it runs, as users see it in the status."""

import dataclasses

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.api.status import CodeStatus, JobProgress, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.report import waits
from trainmaster.core.situation import measures
from trainmaster.core.situation.facts import Facts
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState


def progress(facts: Facts, status: TrainingJobStatus) -> JobProgress:
    """Return how far the workers are now."""
    before, training = facts.status.progress or JobProgress(), facts.job.spec.training
    speaking = facts.at_attempt(AgentState.RUNNING) + facts.at_attempt(AgentState.FINISHED)
    if status.finished:  # the last word of those whose end is the job's
        speaking += facts.at_attempt(AgentState.FAILED)
    beats = [slot.heartbeat for slot in speaking if slot.heartbeat and slot.role == names.WORKER]
    if status.phase == Phase.SUSPENDED:  # their pods are being deleted, and the next attempt has its number already
        told = [slot.replica.heartbeat for slot in facts.slots if slot.replica and slot.role == names.WORKER]
        last = status.attempt - 1
        beats += [one for one in told if one and one.state == AgentState.LEAVING and one.attempt >= last]
    ranks = sorted(facts.regime.heard([rank for beat in beats for rank in beat.ranks]), key=lambda rank: rank.rank)
    total = training.steps  # else as the ranks say, in this attempt or before
    if total is None:
        total = next((figures.count(rank.total_steps) for rank in ranks if rank.total_steps), before.total_steps)
    if not ranks or ranks[0].phase == "load":
        return dataclasses.replace(before, total_steps=total, eta=None, time=facts.now)
    first = ranks[0]  # the same rank for step, loss and speed: others may have reported earlier
    step = figures.count(first.step)
    step = step if total is None else min(step, max(total, facts.resumed_step or 0))  # steps may have been lowered
    seconds = first.step_seconds
    if training.command and first.resumed_step is None:  # they count from its restart only
        seconds = None
    # A script that takes steps and has no loss says none, or one that is not finite: an older one would be wrong.
    has_none = bool(training.command) and first.step > (first.resumed_step or 0)
    measured = [one.figures.metrics for one in facts.ranks if one.figures and one.figures.metrics]
    known = not status.finished and total is not None and seconds is not None
    return JobProgress(
        step=step,
        total_steps=total,
        earlier_steps=figures.count(first.earlier_steps or 0) or None,
        loss=first.loss if first.loss is not None or has_none else before.loss,
        metrics=measures.finite(measured[0]) if measured else before.metrics,
        evaluation=measures.evaluation(facts.ranks, before),
        samples_per_second=first.samples_per_second,
        waiting=waits.waiting(ranks),
        # Which part of a script's step is input, device or exchange is not known from outside.
        step_times=None if training.command else waits.step_times(ranks),
        eta=figures.duration(((total or 0) - step) * (seconds or 0.0)) or None if known else None,
        time=facts.now,
    )


def code_of(job: TrainingJob) -> CodeStatus | None:
    """Return what the spec says of the code that is brought into each pod; None where it brings none."""
    code = job.spec.training.code
    if code is None:
        return None
    if code.git:
        return CodeStatus(commit=code.git.commit, dirty=False, source=code.git.repository)
    if code.image:
        return CodeStatus(sha256=code.image.reference.rpartition(":")[2], source=code.image.reference)
    sent = code.bundle or code.url
    if sent is None:
        return None
    source = code.url.address.partition("?")[0] if code.url else None  # without a query, which may hold a signature
    return CodeStatus(sha256=sent.sha256, commit=sent.commit, dirty=sent.dirty if sent.commit else None, source=source)
