"""The restart ledger: what a failure means after all that happened before, and its line in `status.restarts`.

The budget is read off the ledger, so nothing is counted that is not also told. Used by the rules about failures.
"""

import dataclasses
from datetime import datetime

from trainmaster.api.replicas import TPU
from trainmaster.api.status import MAX_RESTARTS_KEPT, RestartRecord, TrainingJobStatus
from trainmaster.core import budgets, classes, ending, figures, phases
from trainmaster.core.budgets import Stop
from trainmaster.core.facts import Facts
from trainmaster.core.failures import Failure

Lines = tuple[RestartRecord, ...]

# What was decided about a failure. Wait: a survivor's error would end the job, so its cause is waited for.
RESTART, STOP, WAIT = "Restart", "Stop", "Wait"
_HEARING = "Waiting to hear whether another replica was the cause; else: "


def after_failure(facts: Facts, failure: Failure, **more: object) -> TrainingJobStatus:
    """The status after `failure`: the next attempt, or the end. `more` are further fields to update with it."""
    status = judged(facts, failure, **more)
    if status.phase in phases.TERMINAL:
        return status
    return status.model_copy(update={"attempt": facts.status.attempt + 1, "phase": phases.RESTARTING})


def after_lonely_failure(facts: Facts, failure: Failure, **more: object) -> TrainingJobStatus:
    """The status after the failure of a member that starts again alone: the attempt goes on. Or the end."""
    status = judged(facts, failure, **more)
    if status.phase in phases.TERMINAL:
        return status
    why = f"Starting it again alone; the others train on.{_remark(failure)}"
    line = status.restarts[-1].model_copy(update={"why": why, "steps_lost": 0})
    message = f"{failure.replica}: {figures.sentence(failure.evidence)} {why}"
    return status.model_copy(update={"restarts": (*status.restarts[:-1], line), "message": message})


def judged(facts: Facts, failure: Failure, **more: object) -> TrainingJobStatus:
    """The status with `failure` in its ledger, once: the cause takes the line that its first symptom opened."""
    failure = _placed(facts, failure)
    symptom = unexplained(facts.status)
    before = facts.status.restarts[:-1] if symptom else _closed(facts.status.restarts, facts.now)
    stop = budgets.reason_to_stop(facts.job, before, failure)
    line = _line(facts, failure, stop, symptom, _remembers(facts, more.get("incarnations")))
    counted_before = symptom is not None and symptom.decision == RESTART
    update: dict[str, object] = {
        "restarts": _kept((*before, line)),
        "restart_count": facts.status.restart_count + (1 if line.decision == RESTART and not counted_before else 0),
        "message": f"{failure.replica}: {figures.sentence(failure.evidence)} {line.why}",
        **more,
    }
    counted = facts.status.model_copy(update=update)
    return _stopped(facts, counted, line, stop) if line.decision == STOP else counted


def noted(status: TrainingJobStatus, sentence: str) -> TrainingJobStatus:
    """With a sentence more about what is done after the newest failure, where the job goes on."""
    if not sentence or status.phase in phases.TERMINAL:
        return status
    line = status.restarts[-1]
    line = line.model_copy(update={"why": f"{line.why} {sentence}"})
    update = {"restarts": (*status.restarts[:-1], line), "message": f"{status.message} {sentence}"}
    return status.model_copy(update=update)


def stop_undecided(facts: Facts) -> TrainingJobStatus:
    """No cause came to light: the survivor's error stands, and it is one too many."""
    symptom = facts.status.restarts[-1]
    line = symptom.model_copy(update={"decision": STOP, "why": symptom.why.removeprefix(_HEARING)})
    status = facts.status.model_copy(update={"restarts": (*facts.status.restarts[:-1], line)})
    return _stopped(facts, status, line, None)


def overtaken(status: TrainingJobStatus, by: str) -> dict[str, object]:
    """What changes in the status when the job is `by` (resized, suspended) before the cause of a symptom was heard.

    It may not be heard any more, so nobody is blamed: the line costs no budget.
    """
    symptom = unexplained(status)
    if symptom is None:
        return {}
    why = f"Its cause was not heard before the job was {by}; it costs no restart budget."
    update = {"failure_class": classes.ROSTER_CHANGED, "decision": RESTART, "why": why}
    lines = (*status.restarts[:-1], symptom.model_copy(update=update))
    return {"restarts": lines, "restart_count": status.restart_count + (symptom.decision == WAIT)}


def undecided(status: TrainingJobStatus) -> RestartRecord | None:
    """The newest line, while nobody may start because its cause decides whether to go on at all."""
    symptom = unexplained(status)
    return symptom if symptom and symptom.decision == WAIT else None


def unexplained(status: TrainingJobStatus) -> RestartRecord | None:
    """The newest line, while it knows but a survivor's error and training has not gone on since."""
    if status.phase == phases.RUNNING:
        return None  # training has gone on, but for a member that starts again alone
    last = status.restarts[-1] if status.restarts else None
    return last if last and last.failure_class in classes.SYMPTOMS and last.seconds_lost is None else None


def is_open(status: TrainingJobStatus) -> bool:
    """Whether training has not gone on yet after the newest failure."""
    last = status.restarts[-1] if status.restarts else None
    return last is not None and last.seconds_lost is None


def resumed(facts: Facts, lines: Lines) -> Lines:
    """The lines when training goes on: the newest learns what it cost, and all since the last try what was lost."""
    if not lines or lines[-1].seconds_lost is not None:
        return lines
    if facts.status.phase == phases.RUNNING:  # a member was away, or all, of whom each begins in its own time
        all_were = lines[-1].attempt < facts.status.attempt
        newest = _corrected(lines[-1], facts) if all_were else lines[-1]
        return _closed((*lines[:-1], newest), facts.now)
    since = facts.status.running_time
    corrected = [_corrected(line, facts) if since is None or line.time >= since else line for line in lines]
    return _closed(tuple(corrected), facts.now)


def resumed_at(facts: Facts) -> int:
    """The step that training goes on from: as the ranks say (their memory may be newer), else the checkpoint's."""
    if facts.resumed_step is not None:
        return facts.resumed_step
    return facts.checkpoint.step if facts.checkpoint else 0


def reached(facts: Facts) -> int:
    """The furthest step that was trained before training goes on."""
    since = facts.status.running_time
    steps = [line.step for line in facts.status.restarts if since is None or line.time >= since]
    return max([*steps, facts.status.progress.step if facts.status.progress else 0])


def _corrected(line: RestartRecord, facts: Facts) -> RestartRecord:
    if facts.resumed_step is None:
        return line
    lost = max(0, line.step - facts.resumed_step)
    if line.steps_lost in (None, lost):
        return line
    return line.model_copy(update={"steps_lost": lost, "why": f"{line.why} It went on from step {facts.resumed_step}."})


def _placed(facts: Facts, failure: Failure) -> Failure:
    """Who dies while it loads says step 0. It stands at the checkpoint, or no budget would see what was trained."""
    if failure.step > 0 or not facts.checkpoint:
        return failure
    return dataclasses.replace(failure, step=facts.checkpoint.step)


def _line(
    facts: Facts, failure: Failure, stop: Stop | None, symptom: RestartRecord | None, remembered: bool
) -> RestartRecord:
    resumes_at = facts.checkpoint.step if facts.checkpoint else 0
    step = symptom.step if symptom else min(failure.step, facts.job.spec.training.steps or failure.step)
    newer = " or a newer one in memory" if remembered else ""
    decision, why = RESTART, f"Restarting from step {resumes_at}{newer}.{_remark(failure)}"
    older = classes.of(failure.failure_class).older and resumes_at and not symptom
    if older:
        why = f"Restarting from an older checkpoint than that of step {resumes_at}, which may hold what went wrong."
    if stop:
        # Where members live alone, no other's end is a cause.
        echo = failure.failure_class in classes.SYMPTOMS and not facts.job.spec.independent
        decision, why = (WAIT, _HEARING + stop.why) if echo else (STOP, stop.why)
    return RestartRecord(
        attempt=symptom.attempt if symptom else facts.status.attempt,
        time=symptom.time if symptom else facts.now,
        failure_class=failure.failure_class,
        replica=failure.replica,
        node=failure.node,
        exit=failure.exit,
        evidence=failure.evidence,
        step=step,
        steps_lost=max(0, step - resumes_at),
        fingerprint=failure.fingerprint,
        resume_before=resumes_at if older else None,
        stacks=failure.stacks or None,
        decision=decision,
        why=why,
    )


def _remark(failure: Failure) -> str:
    """On a failure after which the job goes on."""
    kind = classes.of(failure.failure_class)
    remarks = (["It costs no restart budget."] if kind.free else []) + ([kind.hint] if kind.hint else [])
    return "".join(f" {remark}" for remark in remarks)


def _remembers(facts: Facts, replaced: object) -> bool:
    """Whether memory may have a newer state. Where replicas are `replaced`, one that is left has to have all of it."""
    spec = facts.job.spec
    off = spec.checkpoint.memory_every_steps == 0 or spec.independent or spec.workers.accelerator == TPU
    if spec.training.task is None or off:
        return False
    if not isinstance(replaced, dict):
        return True
    alike = spec.strategy.type == "AllReduce" and spec.strategy.compression not in ("PowerSGD", "TopK")
    return alike and any(replaced.get(slot.key, 0) == slot.incarnation for slot in facts.slots)


def _stopped(facts: Facts, status: TrainingJobStatus, line: RestartRecord, stop: Stop | None) -> TrainingJobStatus:
    reason = stop.reason if stop else budgets.EXHAUSTED
    return ending.failed(status, reason, f"{figures.sentence(line.evidence or '')} {line.why}", facts.now)


def _closed(lines: Lines, now: datetime) -> Lines:
    """The newest line's time without training ends now, if it has not ended yet."""
    if not lines or lines[-1].seconds_lost is not None:
        return lines
    seconds = max(0.0, (now - lines[-1].time).total_seconds())
    return (*lines[:-1], lines[-1].model_copy(update={"seconds_lost": seconds}))


def _kept(lines: Lines) -> Lines:
    """At most MAX_RESTARTS_KEPT lines. Those that count against the budget are the last to be forgotten.

    Stacks are long: only the newest that there are stay.
    """
    hung = [index for index, line in enumerate(lines) if line.stacks]
    without = {"stacks": None}
    kept = [line.model_copy(update=without) if index in hung[:-1] else line for index, line in enumerate(lines)]
    while len(kept) > MAX_RESTARTS_KEPT:
        free = (index for index, line in enumerate(kept[:-1]) if line.failure_class in classes.FREE)
        del kept[next(free, 0)]
    return tuple(kept)
