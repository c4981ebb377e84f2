"""Replace times that lie in the future: a clock set back, or an edited status, must not stop what waits for it.

Such a time is replaced by the present one, and written so. Times that platforms report are bounded with `past`.
"""

import dataclasses
from datetime import datetime
from typing import Any

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.figures import later

AHEAD_SECONDS = 60  # clocks of one cluster may differ by so much
_TIMES = ("start_time", "running_time", "completion_time")
_TIMED = ("progress", "goodput")


def past(time: datetime | None, now: datetime) -> datetime | None:
    """Return `time`, at most `now`; None where it is None or more than AHEAD_SECONDS in the future."""
    if time is None or time > later(now, AHEAD_SECONDS):
        return None
    return min(time, now)


def until(status: TrainingJobStatus, now: datetime) -> TrainingJobStatus:
    """Return the status with no time after `now` in it. The ledger is left as it is: its readers check the times."""
    update: dict[str, Any] = {name: now for name in _TIMES if _is_to_come(getattr(status, name), now)}
    for name in _TIMED:
        account = getattr(status, name)
        if account is not None and _is_to_come(account.time, now):
            update[name] = dataclasses.replace(account, time=now)
    if any(_is_to_come(condition.last_transition_time, now) for condition in status.conditions):
        update["conditions"] = tuple(
            dataclasses.replace(one, last_transition_time=now) if _is_to_come(one.last_transition_time, now) else one
            for one in status.conditions
        )
    return dataclasses.replace(status, **update) if update else status


def _is_to_come(time: datetime | None, now: datetime) -> bool:
    return time is not None and time > now
