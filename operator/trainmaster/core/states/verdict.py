"""Define the answer of a rule: a changed status, actions, when to look again.

A verdict with a `status` changes the job's memory. Then nothing else happens in this turn: the status is written first,
and the next turn acts on what is written (write ahead), so a crash between the two loses nothing.
"""

from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.states.actions import Action


@dataclass(frozen=True)
class Verdict:
    """A verdict is a rule's answer. `final` ends the turn without a change of memory: later rules are skipped."""

    status: TrainingJobStatus | None = None
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    final: bool = False


NOTHING = Verdict()
