"""Compute what a failure cost in steps: known when ranks report from which step they went on.

A script runs as soon as its processes do, and says neither that it loads nor from where it goes on. Its first step
after a restart tells both. Until then the line of the failure is open, if the script has told steps before; a script
that never tells any is back when its processes are. What is not told stays blank. So does what is told of a step that
came after those of other programs, or of another phase: after a restart these may have nothing left to do, and then the
steps are counted from elsewhere.
"""

import dataclasses
from collections.abc import Collection

from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core.failures import ledger
from trainmaster.core.failures.ledger import Lines
from trainmaster.core.situation.facts import Facts


def awaited(facts: Facts, status: TrainingJobStatus) -> bool:
    """Return whether a script has failed and its next step, which it will tell, has not been told yet."""
    lines = status.restarts
    if not facts.regime.tells_steps_late() or not lines or lines[-1].seconds_lost is not None:
        return False
    return bool(_owed(lines)) and all(rank.phase == "load" for rank in facts.ranks)


def resumed(facts: Facts, lines: Lines) -> Lines:
    """Return the lines when a group goes on: the newest gets its cost, and all since the last try what was lost.

    Of a script it is all since it told any steps, of those in its first phase. The steps of a line that another run has
    left behind were an estimate, too.
    """
    late = facts.regime.tells_steps_late()
    owed = [place for place in _owed(lines) if lines[place].earlier_steps is None]
    places = owed if late else ledger.since_the_last_try(facts, lines)
    return ledger.all_closed(shared(lines, places, facts.resumed_step), facts.now)


def shared(lines: Lines, places: Collection[int], resumed_step: int | None) -> Lines:
    """Return the lines, those at these places with the steps that were really lost since the last try that went on.

    What is lost while a group gathers has lost no step by itself (`judgement` writes 0): nothing was trained since the
    failure before it, which has reached the same step.
    """
    if resumed_step is None:
        return lines
    found, furthest = list(lines), 0
    for place in sorted(places):
        line = lines[place]
        lost = 0 if line.steps_lost == 0 and line.step <= furthest else max(0, line.step - resumed_step)
        if line.steps_lost != lost:
            found[place] = went_on(line, lost, resumed_step)
        elif line.step < resumed_step:  # the rank that was lost had told less than it had kept
            found[place] = dataclasses.replace(line, step=resumed_step)
        furthest = max(furthest, line.step)
    return tuple(found)


def _owed(lines: Lines) -> set[int]:
    """Return the places of the newest lines of which the steps lost are not known; in the others no step was told."""
    owed = set()
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].steps_lost is not None:
            break
        if lines[place].step > 0:
            owed.add(place)
    return owed


def went_on(line: RestartRecord, lost: int, resumed_step: int) -> RestartRecord:
    """Return the line of a failure that has lost so many steps, and after which training went on from this step.

    It had come as far before: a rank that is asked to end takes steps, and saves, after the last one that was told.
    """
    why = f"{line.why} It went on from step {resumed_step}."
    return dataclasses.replace(line, step=max(line.step, resumed_step), steps_lost=lost, why=why)
