"""Define the states that a job's status tells: its phase, and what was decided after a failure."""

from enum import StrEnum


class Phase(StrEnum):
    """A phase says where a job is in its life. `core/states/phases.py` has the legal steps between them."""

    PENDING = "Pending"
    SUSPENDED = "Suspended"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    RESIZING = "Resizing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})


class RestartDecision(StrEnum):
    """A decision says what was done after a failure."""

    RESTART = "Restart"
    STOP = "Stop"
    WAIT = "Wait"  # a survivor's error: the cause may still be told
