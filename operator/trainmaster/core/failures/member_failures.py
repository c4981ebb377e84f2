"""Judge failures of members that restart individually: the attempt goes on, and members of one trouble share a line."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import budgets, judgement, resumption
from trainmaster.core.failures.failures import Failure
from trainmaster.core.situation import lost_with_pods
from trainmaster.core.situation.facts import Facts

# Members that fail with one class within this time of the first one, or before it may start again, and before training
# has gone on, count as one failure: a node, a service or a storage was down for a moment.
TOGETHER_SECONDS = 60
_NAMED = 4  # at most so many members are named in a sentence


def after_member_failure(
    facts: Facts, failure: Failure, members: Sequence[str], changed: TrainingJobStatus
) -> TrainingJobStatus:
    """Return the status after members failed that start again alone: the attempt goes on, or the job ends.

    A member that ends of the same while others are not back yet joins their line, as one failure ends a group only
    once.
    """
    place = _line_to_join(facts, failure, members)
    status = judgement.judged(facts, failure, changed, keep_open=True) if place is None else changed
    if status.phase in TERMINAL:
        return status
    lines = list(status.restarts)
    for number, line in enumerate(lines):  # a member is named in one line only
        if line.members and set(members) & set(line.members):
            others = tuple(key for key in line.members if key not in members)
            lines[number] = dataclasses.replace(line, members=others)
    place = len(lines) - 1 if place is None else place  # its own line is the newest
    everybody = (*(lines[place].members or ()), *members)
    remarks = f"{lost_with_pods.taken_along(facts, everybody)}{judgement.remark(failure)}"
    more = f" and {len(everybody) - _NAMED} more" if len(everybody) > _NAMED else ""
    they = f"{', '.join(everybody[:_NAMED])}{more}" if len(everybody) > 1 else "it"
    why = f"Starting {they} again alone; the others train on.{remarks}"
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
    earlier = [lines[n] for n in alike if n < place and _over(facts, n) <= began]
    others = [  # whose members were not back yet
        line for line in earlier if line.seconds_lost is None or figures.later(line.time, line.seconds_lost) >= began
    ]
    again = any(set(members) & set(line.members or ()) for line in (*others, *lines[place:]))
    return place if began <= facts.now < _over(facts, place) and not again else None


def _over(facts: Facts, place: int) -> datetime:
    """Return until when members may join a line."""
    lines = facts.status.restarts[: place + 1]
    return figures.later(budgets.restart_at(facts.job, lines) or lines[place].time, TOGETHER_SECONDS)


def of_all(facts: Facts, sentence: str) -> TrainingJobStatus:
    """Return the status at the next attempt: the newest open line was a failure of some members, and is one of all."""
    lines = list(facts.status.restarts)
    place = next((place for place in reversed(range(len(lines))) if lines[place].seconds_lost is None), None)
    if place is not None:
        line = lines[place]
        lost = max(0, line.step - resumption.resumed_at(facts))
        why = f"{line.why} {sentence}"
        lines[place] = dataclasses.replace(line, members=None, steps_lost=lost, why=why)
    return dataclasses.replace(
        facts.status, attempt=facts.status.attempt + 1, phase=Phase.RESTARTING, restarts=tuple(lines), message=sentence
    )
