"""Say how an agent of this machine ended, as a cluster says it of a pod."""

from pathlib import Path

from trainmaster.core.states.observed import Ending
from trainmaster.local.failure_report import AGENT_PREFIX, end_of
from trainmaster.wire import names

_NO_PARENT = "the process that ranks are forked from died at its start, again and again; the replica's log says why"


def ending(code: int, log: Path) -> Ending:
    """Return how an agent ended with this code; where it says why in its log, with that."""
    if code in (names.EXIT_BAD_CONFIGURATION, names.EXIT_UNAVAILABLE):
        return Ending(
            code, "Error", next((line for line in reversed(end_of(log)) if line.startswith(AGENT_PREFIX)), "")
        )
    if code == names.EXIT_NO_WARM_PARENT:
        return Ending(code, "", _NO_PARENT)
    if code >= 0:
        return Ending(code, "Ended", f"the agent ended with exit code {code}")
    return Ending(code, "Killed", f"the agent was ended by {names.signal_name(-code)}")
