"""Define what a regime decides: whether the members of a job train and restart together, or each for itself.

A look chooses one (`regime/choice.py`), and all floors ask it by `facts.regime`. The two are `regime/together.py` and
`regime/independent.py`.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from trainmaster.api.job_states import Phase
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core.situation.slots import Slot
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import Heartbeat, Orders, RankProgress, Roster


class Regime(Protocol):
    """A regime answers what differs between jobs whose members restart together and those whose members do not."""

    # Who takes part

    @property
    def roster(self) -> Roster | None:
        """Return the roster of the present attempt; None while a replica that it needs is missing."""

    def seats(self) -> tuple[int, ...]:
        """Return the index of the worker at each place of the group."""

    def does_without(self) -> Collection[str]:
        """Return the keys of members that the present attempt does without."""

    def group(self) -> tuple[Slot, ...]:
        """Return the slots of which the loss of one ends the attempt of all."""

    def group_at(self, state: AgentState) -> tuple[Slot, ...]:
        """Return those of the group whose agent reports `state` of the present attempt."""

    def apart(self) -> tuple[Slot, ...]:
        """Return the slots that come and go one by one."""

    def written(self, status: TrainingJobStatus) -> TrainingJobStatus:
        """Return the status with what is written of the members when its phase begins."""

    # When training begins, goes on and ends

    def has_begun(self) -> bool:
        """Return whether the phase Running may follow Starting."""

    def takes_steps(self) -> bool:
        """Return whether somebody takes steps in the phase Running."""

    def all_wait(self, beats: Sequence[Heartbeat], seconds: float) -> bool:
        """Return whether these agents' ranks have waited for so long for a step that all take together."""

    def overdue_seconds(self) -> float:
        """Return for how many seconds training has stood still as a whole."""

    def heard(self, ranks: Sequence[RankProgress]) -> Sequence[RankProgress]:
        """Return the ranks of workers whose reports show how far the job is."""

    def drifted(self) -> Sequence[Slot]:
        """Return the slots whose agents train with an older roster than the present one, and so must begin anew."""

    def must_finish(self, workers: Sequence[Slot]) -> Sequence[Slot]:
        """Return those of the workers that must finish before the job has succeeded."""

    def least_to_finish(self) -> int:
        """Return how many workers must finish at least."""

    def goodbye_seconds(self) -> float:
        """Return the seconds from SIGTERM to SIGKILL at the end of the job."""

    # Orders

    def order_to_run(self, roster: Roster, grace_seconds: float) -> Orders:
        """Return the order to run the present attempt with this roster."""

    def addressees(self, roster: Roster | None) -> Sequence[Slot]:
        """Return the slots whose agents get the common orders; all others wait."""

    def next_orders(self) -> datetime | None:
        """Return when other orders may be due though nothing happens; None: not at all."""

    # Failures and sizes

    def to_explain(self) -> RestartRecord | None:
        """Return the newest ledger entry where another member's death may be its cause; None where there is none."""

    def is_secondary(self, failure_class: str) -> bool:
        """Return whether a failure of this class may follow from another member's."""

    def tells_steps_late(self) -> bool:
        """Return whether only the first step after a failure tells what the failure cost."""

    def with_costs(self, status: TrainingJobStatus, phase: Phase) -> tuple[RestartRecord, ...]:
        """Return the ledger of `status`, its open entries with their cost if training goes on or has succeeded."""

    def remembers(self, changed: TrainingJobStatus) -> bool:
        """Return whether memory may have a newer state than the checkpoint, with the replicas of `changed`."""

    def to_move(self) -> Sequence[Slot]:
        """Return the slots whose replicas may leave a node at no further cost after a failure."""

    def to_move_at_once(self, slots: Sequence[Slot]) -> Sequence[Slot]:
        """Return those of the slots that leave the nodes that are avoided already."""

    def may_train(self, slot: Slot) -> bool:
        """Return whether ranks of the slot may run."""

    def resized(self) -> str:
        """Return in a sentence how the size changed that the present attempt began with; empty where it did not."""

    def missed_after_resize(self) -> tuple[str, ...]:
        """Return the keys of the members that an attempt of another size goes on without."""

    def has_dismissed(self, key: str) -> bool:
        """Return whether the spec does not ask for this member any more, while the others train on."""
