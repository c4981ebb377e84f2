"""The phases of a job and the legal steps between them: one table, from which the diagram in docs is drawn."""

PENDING = "Pending"
SUSPENDED = "Suspended"
STARTING = "Starting"
RUNNING = "Running"
RESTARTING = "Restarting"
RESIZING = "Resizing"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

TERMINAL = frozenset({SUCCEEDED, FAILED})

# phase -> (next phase, why). Whatever is not terminal may also fail or be suspended.
STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    PENDING: ((STARTING, "all replicas are there"),),
    STARTING: ((RUNNING, "every rank took its first step"), (PENDING, "a replica was lost before the start")),
    RUNNING: ((RESTARTING, "a rank or a replica was lost"), (SUCCEEDED, "all workers finished")),
    RESTARTING: ((RUNNING, "every rank took its first step"), (SUCCEEDED, "all workers finished")),
    RESIZING: ((RUNNING, "every rank took its first step"),),
    SUSPENDED: ((PENDING, "suspend is false again"),),
    SUCCEEDED: (),
    FAILED: (),
}

_FROM_ANY = ((FAILED, "a failure that a restart would not mend"), (SUSPENDED, "suspend is true"))


def next_phases(phase: str) -> tuple[tuple[str, str], ...]:
    """All phases that may follow, each with its reason."""
    return () if phase in TERMINAL else STEPS[phase] + tuple(step for step in _FROM_ANY if step[0] != phase)
