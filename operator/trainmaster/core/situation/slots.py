"""Define the slot: a place in the group that the spec asks for, filled by at most one living replica.

The replica is that of the incarnation in `.status`.
"""

from dataclasses import dataclass

from trainmaster.core.states.observed import Replica
from trainmaster.wire import messages
from trainmaster.wire.agent_states import AgentState


@dataclass(frozen=True, eq=False)
class Slot:
    """A slot is one member of the wanted group, with the replica that fills it now (of the right incarnation; or None).

    `Facts` makes each slot once, so two slots are equal only where they are the same object. To compare all members
    would cost as much as the group is large, for each search among the slots; a search goes by `key`.
    """

    role: str
    index: int
    key: str  # its name, which is the same for all incarnations
    incarnation: int
    name: str  # that of its replica
    ranks: int
    devices: int  # that the job asks for, for its replica
    replica: Replica | None
    heartbeat: messages.Heartbeat | None  # its agent's last one; None where the replica does not run or has sent none
    may_train: bool = False  # by the status: then silence means nothing, as ranks train without the operator
    stale: bool = False  # its replica was made of an older spec; a new attempt is not begun with it

    @property
    def ready(self) -> bool:
        """Return whether its agent takes orders, and its peers can reach it."""
        beat, replica = self.heartbeat, self.replica
        if beat is None or replica is None or beat.state == AgentState.LEAVING or not replica.address:
            return False
        return self.may_train or not (replica.silent or self.stale)

    @property
    def past_loading(self) -> bool:
        """Return whether all its ranks have reported that they train. A running agent alone does not show it."""
        ranks = self.heartbeat.ranks if self.heartbeat else ()
        return len(ranks) >= self.ranks and all(rank.phase != "load" for rank in ranks)
