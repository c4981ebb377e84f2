"""The store at which the ranks of an attempt meet, where this replica is the one that serves it.

Called by `ranks`. The store is a process of its own, forked from the warm parent: it outlives every rank, and its
port was open before anybody was told of it.
"""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from typing import Optional

from trainmaster.wire import names
from trainmaster.wire.messages import Rendezvous, Roster

from trainmaster_trainer.agent import process
from trainmaster_trainer.agent.parent import Parent
from trainmaster_trainer.agent.rendezvous import Offer
from trainmaster_trainer.agent.settings import Settings


@dataclass
class _Store:
    """The listener is kept until the process that has it is known to run: a lost warm parent is asked again."""

    rendezvous: Rendezvous
    listener: Optional[socket.socket]
    identity: int = 0
    pid: Optional[int] = None

    def close_listener(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None


class StoreKeeper:
    """At most one store at a time."""

    def __init__(self, settings: Settings, offer: Offer, parent: Parent) -> None:
        self._settings = settings
        self._offer = offer
        self._parent = parent
        self._store: Optional[_Store] = None

    def take(self, roster: Roster) -> bool:
        """Take the offered socket if the ranks are to meet at it. False: they are to meet here, but cannot."""
        if self._store is not None and self._store.rendezvous == roster.rendezvous:
            return True  # only this replica starts anew, the others have been at this store all the time
        self.drop()
        if _same_place(roster.rendezvous, self._offer.rendezvous):
            self._store = _Store(roster.rendezvous, self._offer.take())
            return True
        if roster.independent:
            return True  # they meet nowhere; the first worker may be younger than the attempt
        host = next((member for member in roster.members if member.role == names.WORKER), roster.members[0])
        return (host.role, host.index) != (self._settings.role, self._settings.index)

    def by_agent(self) -> bool:
        """Whether an agent serves the store, this one or another. False: rank 0 must open it itself."""
        store = self._store
        if store is None:
            return True  # another agent's affair
        if not self._parent.stores:
            store.close_listener()
        return store.listener is not None or store.pid is not None

    def serve(self, roster: Roster, identity: int) -> None:
        """Have the store served, if the ranks meet here and it is not served already.

        After the ranks were started: they have some 10 ms to do before they miss it, and its socket listens.
        """
        store = self._store
        if store is None or store.listener is None:
            return
        store.identity = identity
        host, port = roster.rendezvous_address, roster.rendezvous.port
        request = {"start": "store", "id": identity, "host": host, "port": port, "world_size": roster.world_size}
        self._parent.start(request, [store.listener.fileno()])

    def drop(self) -> None:
        """End the store, if there is one."""
        store, self._store = self._store, None
        if store is None:
            return
        store.close_listener()
        if store.pid is not None:
            process.kill_group(store.pid, signal.SIGKILL)

    def started(self, identity: int, pid: int) -> bool:
        """The store's process runs. False: it is not the store that has this identity."""
        store = self._store
        if store is None or store.identity != identity:
            return False
        store.pid = pid
        store.close_listener()  # else a late rank could connect to a port that nobody serves any more
        return True

    def ended(self, identity: int) -> bool:
        """A process has ended. True: it was the store that is in use. Ranks that have met can do without it."""
        if self._store is None or self._store.identity != identity:
            return False
        self._store.close_listener()
        self._store = None
        return True

    def parent_lost(self) -> None:
        """The store died with the warm parent; one that had not been started is kept for the next parent."""
        if self._store is not None and self._store.listener is None:
            self._store = None


def _same_place(one: Rendezvous, other: Rendezvous) -> bool:
    return (one.port, one.key) == (other.port, other.key)
