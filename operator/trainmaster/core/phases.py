"""Define the phases of a job and the legal steps between them: one table, from which the diagram in docs is drawn."""

PENDING = "Pending"
SUSPENDED = "Suspended"
STARTING = "Starting"
RUNNING = "Running"
RESTARTING = "Restarting"
RESIZING = "Resizing"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

TERMINAL = frozenset({SUCCEEDED, FAILED})

REPLICAS_READY = "ReplicasReady"  # the condition that says whether the group is complete, and since when

# While the group gathers, no agent has been told to run the present attempt. Starting is written before the first
# order to run is given, so an operator that was killed in between knows that ranks may train.
GATHERING = frozenset({PENDING, RESTARTING, RESIZING})

# phase -> (next phase, why). Any phase but Suspended and the terminal ones may also become Failed or Suspended.
STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    PENDING: ((STARTING, "all replicas are there"), (RESTARTING, "an agent ended")),
    STARTING: ((RUNNING, "every rank took its first step, or its agent began (scripts, ParameterServer, Gossip)"),),
    RUNNING: (),
    RESTARTING: ((STARTING, "all replicas are there"),),
    RESIZING: ((STARTING, "all replicas are there"), (RESTARTING, "an agent ended")),
    SUSPENDED: ((PENDING, "suspend is false again"),),
    SUCCEEDED: (),
    FAILED: (),
}

_FROM_ANY = ((FAILED, "a failure that a restart would not mend"), (SUSPENDED, "suspend is true"))
_WITH_RANKS = (
    (RESTARTING, "a rank or a replica was lost"),
    (RESIZING, "the number of workers changed, or members join after the spec changed"),
    (SUCCEEDED, "all workers finished"),
)


def next_phases(phase: str) -> tuple[tuple[str, str], ...]:
    """Return all phases that may follow, each with its reason."""
    if phase in TERMINAL:
        return ()
    ranks = _WITH_RANKS if phase in (STARTING, RUNNING) else ()
    ends = _FROM_ANY if phase != SUSPENDED else ()
    return STEPS[phase] + ranks + ends
