"""Define the states of an agent and the verbs of its orders. The agent runs on Python 3.9, which has no `StrEnum`."""

from __future__ import annotations

from enum import Enum


class _Word(str, Enum):  # noqa: UP042 - the agent's Python may be 3.9
    """A word is an enum member that is its value in format strings and in JSON, as that of a `StrEnum`."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, format_spec: str) -> str:
        return format(str(self.value), format_spec)


class AgentState(_Word):
    """An agent's state says what its ranks do."""

    WAITING = "Waiting"  # no ranks; ready for orders (warm, if it could be)
    RUNNING = "Running"  # ranks of `attempt` are alive
    FINISHED = "Finished"  # all ranks of `attempt` ended with exit code 0
    FAILED = "Failed"  # a rank of `attempt` died; the others were ended; see `exit`
    LEAVING = "Leaving"  # it was told to end (SIGTERM, or Exit): ranks are ending, orders are not taken any more


class Verb(_Word):
    """The verb of an order says what the agent is to do."""

    WAIT = "Wait"  # end all ranks of attempts older than `attempt`; keep warm
    RUN = "Run"  # end older ranks, then train `attempt` with `roster`
    EXIT = "Exit"  # end everything and leave with `exit_code`
