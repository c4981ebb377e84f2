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
    times = {name: time for name in _TIMES if (time := getattr(status, name))}
    accounts = {name: account for name in _TIMED if (account := getattr(status, name)) and account.time}
    conditions = status.conditions
    told = [*times.values(), *(one.time for one in accounts.values())]
    told += [one.last_transition_time for one in conditions]
    if all(time <= now for time in told):  # as nearly always
        return status
    update: dict[str, Any] = {name: min(time, now) for name, time in times.items()}
    update |= {name: dataclasses.replace(one, time=min(one.time, now)) for name, one in accounts.items()}
    update["conditions"] = tuple(
        dataclasses.replace(one, last_transition_time=min(one.last_transition_time, now)) for one in conditions
    )
    return dataclasses.replace(status, **update)
