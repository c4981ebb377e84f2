"""Keep the restart ledger: judge a failure by all that happened before, and write its line in `status.restarts`.

The budget is computed from the ledger, so every failure that counts is also shown.
"""

import dataclasses
from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.states import TERMINAL, Phase, RestartDecision
from trainmaster.api.status import MAX_RESTARTS_KEPT, RestartRecord, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import budgets, classes, told_late
from trainmaster.core.failures.budgets import Stop
from trainmaster.core.failures.failures import Failure, of_line
from trainmaster.core.situation import parting
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import ending
from trainmaster.core.states.phases import GATHERING

Lines = tuple[RestartRecord, ...]

# What was decided about a failure. Wait: a survivor's error would end the job, so its cause is waited for.
_HEARING = "Waiting to hear whether another replica was the cause; else: "

# Members that fail with one class within this time of the first one, or before it may start again, and before training
# has gone on, count as one failure: a node, a service or a storage was down for a moment.
TOGETHER_SECONDS = 60
_NAMED = 4  # at most so many members are named in a sentence


def after_failure(facts: Facts, failure: Failure, changed: TrainingJobStatus | None = None) -> TrainingJobStatus:
    """Return the status after `failure`: the next attempt, or the end. `changed` has what else changes."""
    status = judged(facts, failure, changed)
    if status.phase in TERMINAL:
        return status
    return dataclasses.replace(status, attempt=facts.status.attempt + 1, phase=Phase.RESTARTING)


def after_lonely_failure(
    facts: Facts, failure: Failure, members: Sequence[str], changed: TrainingJobStatus
) -> TrainingJobStatus:
    """Return the status after members failed that start again alone: the attempt goes on, or the job ends.

    A member that ends of the same while others are not back yet joins their line, as one failure ends a group only
    once.
    """
    place = _line_to_join(facts, failure, members)
    status = judged(facts, failure, changed, alone=True) if place is None else changed
    if status.phase in TERMINAL:
        return status
    lines = [_without(line, members) for line in status.restarts]
    place = len(lines) - 1 if place is None else place  # its own line is the newest
    everybody = (*(lines[place].members or ()), *members)
    remarks = f"{parting.taken_along(facts, everybody)}{_remark(failure)}"
    why = f"Starting {_they(everybody)} again alone; the others train on.{remarks}"
    lines[place] = dataclasses.replace(lines[place], members=everybody, why=why, steps_lost=0)
    message = f"{failure.replica}: {figures.sentence(failure.evidence)} {why}"
    return dataclasses.replace(status, restarts=tuple(lines), message=message)


def _line_to_join(facts: Facts, failure: Failure, members: Sequence[str]) -> int | None:
    """Return the place of the open line of the same trouble; None where there is none or one of `members` had it."""
    lines = facts.status.restarts
    alike = [place for place, line in enumerate(lines) if line.failure_class == failure.failure_class]
    place = next((place for place in reversed(alike) if lines[place].seconds_lost is None), None)
    if place is None or lines[place].members is None:
        return None
    began = lines[place].time
    # A trouble that goes on has a line for each round: members of the one before may join this one as well.
    others = [lines[n] for n in alike if n < place and _over(facts, n) <= began and _was_open(lines[n], began)]
    again = any(set(members) & set(line.members or ()) for line in (*others, *lines[place:]))
    return place if began <= facts.now < _over(facts, place) and not again else None


def _was_open(line: RestartRecord, then: datetime) -> bool:
    """Return whether its members were not back yet at that time."""
    return line.seconds_lost is None or figures.later(line.time, line.seconds_lost) >= then


def _over(facts: Facts, place: int) -> datetime:
    """Return until when members may join a line."""
    lines = facts.status.restarts[: place + 1]
    return figures.later(budgets.restart_at(facts.job, lines) or lines[place].time, TOGETHER_SECONDS)


def _without(line: RestartRecord, members: Sequence[str]) -> RestartRecord:
    """Return the line without these members: a member is named in one line only."""
    if not line.members or not set(members) & set(line.members):
        return line
    return dataclasses.replace(line, members=tuple(key for key in line.members if key not in members))


def _they(members: Sequence[str]) -> str:
    if len(members) == 1:
        return "it"
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return f"{', '.join(members[:_NAMED])}{more}"


def judged(
    facts: Facts, failure: Failure, changed: TrainingJobStatus | None = None, alone: bool = False
) -> TrainingJobStatus:
    """Return the status with `failure` in its ledger, once: the cause takes the line that its first symptom opened.

    Where members start again `alone`, others may still be away; their lines stay open until all train.
    """
    failure = _placed(facts, failure)
    symptom = explained_by(facts, failure)
    before = facts.status.restarts[:-1] if symptom else facts.status.restarts
    before = before if symptom or alone else all_closed(before, facts.now)
    stop = budgets.reason_to_stop(facts.job, before, failure, symptom.time if symptom else facts.now)
    changed = changed or facts.status
    line = _line(facts, failure, stop, symptom, facts.regime.remembers(changed))
    counted_before = symptom is not None and symptom.decision == RestartDecision.RESTART
    counted = dataclasses.replace(
        changed,
        restarts=_kept((*before, line)),
        restart_count=changed.restart_count + (line.decision == RestartDecision.RESTART and not counted_before),
        message=f"{failure.replica}: {figures.sentence(failure.evidence)} {line.why}",
    )
    return _stopped(facts, counted, line, stop) if line.decision == RestartDecision.STOP else counted


def noted(status: TrainingJobStatus, sentence: str) -> TrainingJobStatus:
    """Return the status with one more sentence on what follows the newest failure; unchanged if the job has ended."""
    if not sentence or status.phase in TERMINAL:
        return status
    line = status.restarts[-1]
    line = dataclasses.replace(line, why=f"{line.why} {sentence}")
    return dataclasses.replace(status, restarts=(*status.restarts[:-1], line), message=f"{status.message} {sentence}")


def of_all(facts: Facts, sentence: str) -> TrainingJobStatus:
    """Return the status at the next attempt: the newest open line was a failure of some members, and is one of all."""
    lines = list(facts.status.restarts)
    place = next((place for place in reversed(range(len(lines))) if lines[place].seconds_lost is None), None)
    if place is not None:
        line = lines[place]
        lost = max(0, line.step - resumed_at(facts))
        why = f"{line.why} {sentence}"
        lines[place] = dataclasses.replace(line, members=None, steps_lost=lost, why=why)
    return dataclasses.replace(
        facts.status, attempt=facts.status.attempt + 1, phase=Phase.RESTARTING, restarts=tuple(lines), message=sentence
    )


def stop_undecided(facts: Facts) -> TrainingJobStatus:
    """Return the ended status: no cause was reported, so the survivor's error stands, and it exceeds the budget."""
    symptom = facts.status.restarts[-1]
    line = dataclasses.replace(symptom, decision=RestartDecision.STOP, why=symptom.why.removeprefix(_HEARING))
    status = dataclasses.replace(facts.status, restarts=(*facts.status.restarts[:-1], line))
    before = facts.status.restarts[:-1]
    return _stopped(facts, status, line, budgets.reason_to_stop(facts.job, before, of_line(line), line.time))


def overtaken(status: TrainingJobStatus, by: str) -> TrainingJobStatus:
    """Return the status where the job is `by` (resized, suspended) before a symptom's cause is known.

    The cause may never be reported then, so no replica is blamed: the line costs no budget.
    """
    symptom = unexplained(status)
    if symptom is None:
        return status
    why = f"Its cause was not heard before the job was {by}; it costs no restart budget."
    line = dataclasses.replace(symptom, failure_class=classes.ROSTER_CHANGED, decision=RestartDecision.RESTART, why=why)
    count = status.restart_count + (symptom.decision == RestartDecision.WAIT)
    return dataclasses.replace(status, restarts=(*status.restarts[:-1], line), restart_count=count)


def undecided(status: TrainingJobStatus) -> RestartRecord | None:
    """Return the newest line while no rank may start, because its cause decides whether to go on; else None."""
    symptom = unexplained(status)
    return symptom if symptom and symptom.decision == RestartDecision.WAIT else None


def unexplained(status: TrainingJobStatus) -> RestartRecord | None:
    """Return the newest line while it has only a survivor's error and training has not gone on since; else None."""
    if status.phase == Phase.RUNNING:
        return None  # training has gone on, except for a member that starts again alone
    last = status.restarts[-1] if status.restarts else None
    return last if last and last.failure_class in classes.SYMPTOMS and last.seconds_lost is None else None


def explained_by(facts: Facts, failure: Failure) -> RestartRecord | None:
    """Return the newest line where `failure` is its cause; else None."""
    return unexplained(facts.status) or _first_sign(facts, failure)


def _first_sign(facts: Facts, failure: Failure) -> RestartRecord | None:
    """Return the newest line where it is of a rank that was killed just before its whole replica was lost; else None.

    What ends a pod or a node kills one process after another, and an agent may report the first at once.
    """
    last = facts.status.restarts[-1] if is_open(facts.status) else None
    if last is None or last.failure_class != classes.SIGNAL or facts.status.phase == Phase.RUNNING:
        return None
    own = (last.replica or "").startswith(f"{failure.replica} rank ")
    return last if own and last.time <= facts.now < figures.later(last.time, TOGETHER_SECONDS) else None


def is_open(status: TrainingJobStatus) -> bool:
    """Return whether training has not gone on yet after the newest failure."""
    last = status.restarts[-1] if status.restarts else None
    return last is not None and last.seconds_lost is None


def resumed(facts: Facts, lines: Lines) -> Lines:
    """Return the lines when a group goes on: the newest gets its cost, and all since the last try what was lost.

    The steps of a line that another run has left behind were an estimate, too.
    """
    if facts.regime.tells_steps_late():
        return all_closed(told_late.corrected(lines, facts.resumed_step), facts.now)
    return all_closed(told_late.shared(lines, _since_the_last_try(facts, lines), facts.resumed_step), facts.now)


def left_behind(status: TrainingJobStatus) -> Lines:
    """Return the lines for another run that goes on from `status`: open lines end at the time of its last write.

    No rank trained since; that is no failure's cost, and the next run has nothing to wait for.
    """
    accounts = (status.goodput, status.progress, *status.restarts)
    written = [account.time for account in accounts if account and account.time]
    return all_closed(status.restarts, max(written)) if written else ()


def resumed_at(facts: Facts) -> int:
    """Return the step that training goes on from: as ranks report (memory may be newer), else the checkpoint's.

    Nothing is known to be lost where a script does not report it.
    """
    if facts.resumed_step is not None:
        return facts.resumed_step
    if facts.regime.tells_steps_late():
        return reached(facts)
    return facts.checkpoint.step if facts.checkpoint else 0


def reached(facts: Facts) -> int:
    """Return the furthest step that was trained before training goes on."""
    return max(_fallen_from(facts), facts.status.progress.step if facts.status.progress else 0)


def _fallen_from(facts: Facts) -> int:
    """Return the furthest step of the failures after which training has not gone on; 0 where there is none."""
    lines = facts.status.restarts
    return max((lines[place].step for place in _since_the_last_try(facts, lines)), default=0)


def _since_the_last_try(facts: Facts, lines: Lines) -> list[int]:
    """Return the places of the lines since training went on last. Operators' clocks differ, so they may lie apart."""
    since = facts.status.running_time
    return [place for place, line in enumerate(lines) if since is None or line.time >= since]


def resume_before(facts: Facts, status: TrainingJobStatus) -> int | None:
    """Return the step that the checkpoint of `status`' attempt has to be older than; None: any checkpoint will do."""
    failed = status.restarts[-1] if status.restarts and status.restarts != facts.status.restarts else None
    if failed and failed.attempt < status.attempt:
        return failed.resume_before  # of the failure that this attempt follows, as it is known now
    return status.resume_before if status.attempt == facts.status.attempt else still_before(facts)


def still_before(facts: Facts) -> int | None:
    """Return `resume_before` while it holds: an attempt inherits it until all have trained past it and saved again."""
    before = facts.status.resume_before
    if before is None or facts.status.phase != Phase.RUNNING:
        return before
    newest = facts.checkpoint.step if facts.checkpoint else 0
    return None if max(facts.step, newest) > before else before


def doubted_attempt(status: TrainingJobStatus) -> int | None:
    """Return the attempt whose failure `status.resume_before` follows (later checkpoints are trusted); or None."""
    doubted = [line.attempt for line in status.restarts if classes.of(line.failure_class).older]
    return doubted[-1] if doubted and status.resume_before is not None else None


def _before(facts: Facts, failure: Failure) -> int | None:
    """Return the step that the next checkpoint has to be older than; None where any will do.

    The rank that failed knows what it has saved; what agents report of the storage may be late.
    """
    if not classes.of(failure.failure_class).older:
        return still_before(facts)
    known = facts.checkpoint.step if facts.checkpoint else 0
    return max(1, known if failure.resume_before is None else failure.resume_before)


def _placed(facts: Facts, failure: Failure) -> Failure:
    """Return the failure at the checkpoint's step where it says step 0: a rank that loads has not counted yet."""
    if failure.step > 0 or not facts.checkpoint:
        return failure
    return dataclasses.replace(failure, step=facts.checkpoint.step)


def _seconds_to_detect(facts: Facts, failure: Failure, symptom: RestartRecord | None) -> float | None:
    """Return the seconds of standstill before a failure was noticed; None: none."""
    told = [failure.seconds_to_detect, (symptom.seconds_to_detect or 0.0) if symptom else 0.0]
    if symptom is None:
        told.append(facts.regime.overdue_seconds())
    since = facts.status.running_time or facts.now
    longest = max(0.0, (facts.now - since).total_seconds())
    return round(min(max(told), longest), 1) or None


def _line(
    facts: Facts, failure: Failure, stop: Stop | None, symptom: RestartRecord | None, remembered: bool
) -> RestartRecord:
    resumes_at = facts.checkpoint.step if facts.checkpoint else 0
    step = symptom.step if symptom else min(failure.step, facts.job.spec.training.steps or failure.step)
    newer = " or a newer one in memory" if remembered else ""
    script = facts.regime.tells_steps_late()
    # A rank's last word tells what its try has trained; of a replica that is lost while ranks load, nobody knows more.
    loads = facts.status.phase == Phase.STARTING and " rank " not in failure.replica
    gathers = symptom is None and (loads or facts.status.phase in GATHERING) and 0 < step <= _fallen_from(facts)
    where = "the script goes on from what it has saved" if script else f"from step {resumes_at}{newer}"
    decision, why = RestartDecision.RESTART, f"Restarting{';' if script else ''} {where}.{_remark(failure)}"
    older = _before(facts, failure)
    if older:
        why = f"Restarting from an older checkpoint than that of step {older}, which may hold what went wrong."
        why += _remark(failure)
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
        fingerprint=failure.fingerprint,
        resume_before=older or None,
        stacks=failure.stacks or None,
        seconds_to_detect=_seconds_to_detect(facts, failure, symptom),
        decision=decision,
        why=why,
    )


def _remark(failure: Failure) -> str:
    """Return what to add about a failure after which the job goes on."""
    kind = classes.of(failure.failure_class)
    remarks = (["It costs no restart budget."] if kind.free else []) + ([kind.hint] if kind.hint else [])
    return "".join(f" {remark}" for remark in remarks)


def _stopped(facts: Facts, status: TrainingJobStatus, line: RestartRecord, stop: Stop | None) -> TrainingJobStatus:
    reason = stop.reason if stop else budgets.EXHAUSTED
    return ending.failed(status, reason, f"{figures.sentence(line.evidence or '')} {line.why}", facts.now)


def all_closed(lines: Lines, now: datetime) -> Lines:
    """Return the lines with the open ones closed at `now`: the newest, or those of members that were away."""
    return tuple(closed(line, now) if line.seconds_lost is None else line for line in lines)


def closed(line: RestartRecord, now: datetime) -> RestartRecord:
    """Return the line with the time that passed until `now`, when training goes on."""
    seconds = max(0.0, (now - line.time).total_seconds()) + (line.seconds_to_detect or 0.0)
    return dataclasses.replace(line, seconds_lost=seconds)


def _kept(lines: Lines) -> Lines:
    """Return at most MAX_RESTARTS_KEPT lines. Those that count against the budget are dropped last.

    Stacks are long: only the newest ones are kept.
    """
    hung = [index for index, line in enumerate(lines) if line.stacks]
    kept = [dataclasses.replace(line, stacks=None) if index in hung[:-1] else line for index, line in enumerate(lines)]
    while len(kept) > MAX_RESTARTS_KEPT:
        free = (index for index, line in enumerate(kept[:-1]) if line.failure_class in classes.FREE)
        del kept[next(free, 0)]
    return tuple(kept)
