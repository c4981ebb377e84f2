"""Define the phases of a job and the legal steps between them: one table, from which the diagram in docs is drawn."""

from trainmaster.api.job_states import TERMINAL, Phase

REPLICAS_READY = "ReplicasReady"  # the condition that says whether the group is complete, and since when

# While the group gathers, no agent has been told to run the present attempt. Starting is written before the first
# order to run is given, so an operator that was killed in between knows that ranks may train.
GATHERING = frozenset({Phase.PENDING, Phase.RESTARTING, Phase.RESIZING})

# phase -> (next phase, why). Any phase but Suspended and the terminal ones may also become Failed or Suspended.
STEPS: dict[Phase, tuple[tuple[Phase, str], ...]] = {
    Phase.PENDING: ((Phase.STARTING, "all replicas are there"), (Phase.RESTARTING, "an agent ended")),
    Phase.STARTING: (
        (Phase.RUNNING, "every rank took its first step, or its agent began (scripts, ParameterServer, Gossip)"),
    ),
    Phase.RUNNING: (),
    Phase.RESTARTING: ((Phase.STARTING, "all replicas are there"),),
    Phase.RESIZING: ((Phase.STARTING, "all replicas are there"), (Phase.RESTARTING, "an agent ended")),
    Phase.SUSPENDED: ((Phase.PENDING, "suspend is false again"),),
    Phase.SUCCEEDED: (),
    Phase.FAILED: (),
}

_FROM_ANY = ((Phase.FAILED, "a failure that a restart would not mend"), (Phase.SUSPENDED, "suspend is true"))
_WITH_RANKS = (
    (Phase.RESTARTING, "a rank or a replica was lost"),
    (Phase.RESIZING, "the number of workers changed, or members join after the spec changed"),
    (Phase.SUCCEEDED, "all workers finished"),
)


def next_phases(phase: Phase) -> tuple[tuple[Phase, str], ...]:
    """Return all phases that may follow, each with its reason."""
    if phase in TERMINAL:
        return ()
    ranks = _WITH_RANKS if phase in (Phase.STARTING, Phase.RUNNING) else ()
    ends = _FROM_ANY if phase != Phase.SUSPENDED else ()
    return STEPS[phase] + ranks + ends
