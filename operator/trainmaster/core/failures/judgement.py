"""Judge a failure by all that happened before: the job goes on, waits for the cause, or ends.

The judgement is written as a line of the restart ledger.
"""

import dataclasses

from trainmaster.api.job_states import TERMINAL, Phase, RestartDecision
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import budgets, classes, ledger, resumption
from trainmaster.core.failures.budgets import Stop
from trainmaster.core.failures.failures import Failure, of_line
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import ending
from trainmaster.core.states.phases import GATHERING

# What was decided about a failure. Wait: a survivor's error would end the job, so its cause is waited for.
_HEARING = "Waiting to hear whether another replica was the cause; else: "


def after_failure(facts: Facts, failure: Failure, changed: TrainingJobStatus | None = None) -> TrainingJobStatus:
    """Return the status after `failure`: the next attempt, or the end. `changed` has what else changes."""
    status = judged(facts, failure, changed)
    if status.phase in TERMINAL:
        return status
    return dataclasses.replace(status, attempt=facts.status.attempt + 1, phase=Phase.RESTARTING)


def judged(
    facts: Facts, failure: Failure, changed: TrainingJobStatus | None = None, keep_open: bool = False
) -> TrainingJobStatus:
    """Return the status with `failure` in its ledger, once: the cause takes the line that its first symptom opened.

    With `keep_open` the lines of members that may still be away stay open; else all that happened before is over.
    """
    if failure.step <= 0 and facts.checkpoint:  # a rank that loads has not counted yet
        failure = dataclasses.replace(failure, step=facts.checkpoint.step)
    symptom = ledger.explained_by(facts, failure)
    before = facts.status.restarts[:-1] if symptom else facts.status.restarts
    before = before if symptom or keep_open else ledger.all_closed(before, facts.now)
    stop = budgets.reason_to_stop(facts.job, before, failure, symptom.time if symptom else facts.now)
    changed = changed or facts.status
    line = _line(facts, failure, stop, symptom, changed)
    counted_before = symptom is not None and symptom.decision == RestartDecision.RESTART
    counted = dataclasses.replace(
        changed,
        restarts=ledger.kept((*before, line)),
        restart_count=changed.restart_count + (line.decision == RestartDecision.RESTART and not counted_before),
        message=f"{failure.replica}: {figures.sentence(failure.evidence)} {line.why}",
    )
    return _stopped(facts, counted, line, stop) if line.decision == RestartDecision.STOP else counted


def stop_undecided(facts: Facts) -> TrainingJobStatus:
    """Return the ended status: no cause was reported, so the survivor's error stands, and it exceeds the budget."""
    symptom = facts.status.restarts[-1]
    line = dataclasses.replace(symptom, decision=RestartDecision.STOP, why=symptom.why.removeprefix(_HEARING))
    status = dataclasses.replace(facts.status, restarts=(*facts.status.restarts[:-1], line))
    before = facts.status.restarts[:-1]
    return _stopped(facts, status, line, budgets.reason_to_stop(facts.job, before, of_line(line), line.time))


def _line(
    facts: Facts, failure: Failure, stop: Stop | None, symptom: RestartRecord | None, changed: TrainingJobStatus
) -> RestartRecord:
    resumes_at = facts.checkpoint.step if facts.checkpoint else 0
    step = symptom.step if symptom else min(failure.step, facts.job.spec.training.steps or failure.step)
    script = facts.regime.tells_steps_late()
    # A rank's last word tells what its try has trained; of a replica that is lost while ranks load, nobody knows more.
    loads = facts.status.phase == Phase.STARTING and " rank " not in failure.replica
    gathers = (
        symptom is None and (loads or facts.status.phase in GATHERING) and 0 < step <= resumption.fallen_from(facts)
    )
    progress, older = facts.status.progress, resumption.still_before(facts)
    earlier = max((figures.count(rank.earlier_steps or 0) for rank in facts.ranks), default=0)
    if not earlier and progress and all(rank.phase == "load" for rank in facts.ranks):
        earlier = progress.earlier_steps or 0  # nobody is left to tell it
    if classes.class_of(
        failure.failure_class
    ).older:  # the rank that failed knows what it has saved; agents may be late
        older = max(1, resumes_at if failure.resume_before is None else failure.resume_before)
    decision, why = RestartDecision.RESTART, _from_where(facts, older, changed) + remark(failure)
    if stop:
        secondary = facts.regime.is_secondary(failure.failure_class)
        decision, why = (RestartDecision.WAIT, _HEARING + stop.why) if secondary else (RestartDecision.STOP, stop.why)
    return RestartRecord(
        attempt=symptom.attempt if symptom else facts.status.attempt,
        time=symptom.time if symptom else facts.now,
        failure_class=failure.failure_class,
        replica=failure.replica,
        node=failure.node,
        exit=failure.exit,
        evidence=failure.evidence,
        step=step,
        steps_lost=None if script else 0 if gathers else max(0, step - resumes_at),
        earlier_steps=symptom.earlier_steps if symptom else earlier or None,
        fingerprint=failure.fingerprint,
        resume_before=older or None,
        stacks=failure.stacks or None,
        seconds_to_detect=_seconds_to_detect(facts, failure, symptom),
        decision=decision,
        why=why,
    )


def _from_where(facts: Facts, older: int | None, changed: TrainingJobStatus) -> str:
    """Return in a sentence what a restart goes on from."""
    if older:
        return f"Restarting from an older checkpoint than that of step {older}, which may hold what went wrong."
    if facts.regime.tells_steps_late():
        return "Restarting; the script goes on from what it has saved."
    newer = " or a newer one in memory" if facts.regime.remembers(changed) else ""
    return f"Restarting from step {facts.checkpoint.step if facts.checkpoint else 0}{newer}."


def _seconds_to_detect(facts: Facts, failure: Failure, symptom: RestartRecord | None) -> float | None:
    """Return the seconds of standstill before a failure was noticed; None: none."""
    before = (symptom.seconds_to_detect or 0.0) if symptom else facts.regime.overdue_seconds()
    since = facts.status.running_time or facts.now
    longest = max(0.0, (facts.now - since).total_seconds())
    return round(min(max(failure.seconds_to_detect, before), longest), 1) or None


def remark(failure: Failure) -> str:
    """Return what to add about a failure after which the job goes on."""
    kind = classes.class_of(failure.failure_class)
    remarks = (["It costs no restart budget."] if kind.name in classes.FREE else []) + (
        [kind.hint] if kind.hint else []
    )
    return "".join(f" {remark}" for remark in remarks)


def _stopped(facts: Facts, status: TrainingJobStatus, line: RestartRecord, stop: Stop | None) -> TrainingJobStatus:
    reason = stop.reason if stop else budgets.EXHAUSTED
    return ending.failed(status, reason, f"{figures.sentence(line.evidence or '')} {line.why}", facts.now)
