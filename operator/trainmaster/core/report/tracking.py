"""State the condition `TrackersReached`: whether the trackers of the job are told its figures.

Training does not wait for them, and what they have not been told is in metrics.jsonl. A job whose trackers have never
been away has no such condition.
"""

from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts, Statement

TRACKERS_REACHED, UNREACHABLE = "TrackersReached", "TrackerUnreachable"
KEPT = "Training goes on; metrics.jsonl keeps what is to be told."
_LONGEST = 700  # characters of what one of them says


def statement(facts: Facts) -> Statement | None:
    """Return the condition's type, whether it holds, reason and message; None: nothing was ever wrong."""
    told = [slot.heartbeat for slot in facts.slots if slot.heartbeat]
    beats = [beat for beat in told if beat.attempt == facts.status.attempt]
    problems = {title: problem for beat in beats for title, problem in beat.trackers.items()}
    if problems:
        words = " ".join(
            figures.sentence(f"{figures.legible(title)}: {figures.legible(problem)[:_LONGEST]}")
            for title, problem in sorted(problems.items())
        )
        return TRACKERS_REACHED, False, UNREACHABLE, f"{words} {KEPT}"
    before = next((one for one in facts.status.conditions if one.type == TRACKERS_REACHED), None)
    if before is None:
        return None
    if before.status == "True" or beats:
        return TRACKERS_REACHED, True, "Reached", "The trackers have all lines again."
    return TRACKERS_REACHED, False, before.reason, before.message
