"""No time that is written is to come: a clock that was put back, or a hand that edits, must not stop what waits for it.

Such a time is taken for the present one, and written so. Called by `facts`; what platforms tell is bounded with `past`.
"""

from datetime import datetime

from trainmaster.api.status import Condition, TrainingJobStatus
from trainmaster.core.figures import later

AHEAD_SECONDS = 60  # that clocks of one cluster may differ by
_TIMES = ("start_time", "running_time", "completion_time")
_TIMED = ("progress", "goodput")


def past(time: datetime | None, now: datetime) -> datetime | None:
    """`time`, unless it is to come. What another clock tells that goes a little before ours has just happened."""
    if time is None or time > later(now, AHEAD_SECONDS):
        return None
    return min(time, now)


def until(status: TrainingJobStatus, now: datetime) -> TrainingJobStatus:
    """The status with no time after `now` in it. The ledger is history: whoever reads it looks at the time."""
    update: dict[str, object] = {name: now for name in _TIMES if _is_to_come(getattr(status, name), now)}
    for name in _TIMED:
        account = getattr(status, name)
        if account is not None and _is_to_come(account.time, now):
            update[name] = account.model_copy(update={"time": now})
    if any(_is_to_come(condition.last_transition_time, now) for condition in status.conditions):
        update["conditions"] = tuple(_condition(condition, now) for condition in status.conditions)
    return status.model_copy(update=update) if update else status


def _condition(condition: Condition, now: datetime) -> Condition:
    to_come = _is_to_come(condition.last_transition_time, now)
    return condition.model_copy(update={"last_transition_time": now}) if to_come else condition


def _is_to_come(time: datetime | None, now: datetime) -> bool:
    return time is not None and time > now
