"""Keep the store at which the ranks of an attempt meet, where this replica is the one that serves it.

The store is a process of its own, forked from the warm parent: it outlives every rank, and its port was
open before any rank was told of it. That of the next attempt is served while this one trains, so that a restart
need not wait for it.
"""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from typing import Iterator, Optional

from trainmaster.wire import names
from trainmaster.wire.messages import Rendezvous, Roster

from trainmaster_trainer.agent import process
from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.parent import Parent
from trainmaster_trainer.agent.rendezvous import Offer, own_end


@dataclass
class _Store:
    """_Store keeps its listener until the process that has it is known to run: a lost warm parent is asked again.

    The listener of a store that is not yet in use is the offer's.
    """

    rendezvous: Rendezvous
    listener: Optional[socket.socket]
    identity: int = 0  # 0: no process has been asked to serve it
    pid: Optional[int] = None

    def close_listener(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None


class StoreKeeper:
    """StoreKeeper keeps at most one store in use, one at the offered socket, and one that is not used any more."""

    def __init__(self, settings: AgentSettings, offer: Offer, parent: Parent, identities: Iterator[int]) -> None:
        self._settings = settings
        self._offer = offer
        self._parent = parent
        self._identities = identities
        self._store: Optional[_Store] = None
        self._next: Optional[_Store] = None
        self._last: Optional[_Store] = None  # its ranks have gone

    def take(self, roster: Roster) -> bool:
        """Take the offered socket if ranks are to meet at it; return False if they are to meet here, but cannot."""
        if self._store is not None and self._store.rendezvous == roster.rendezvous:
            return True  # only this replica starts anew, the others have been at this store all the time
        self._retire()
        if (roster.rendezvous.port, roster.rendezvous.key) == (self._offer.rendezvous.port, self._offer.rendezvous.key):
            self._store, self._next = self._next or _Store(roster.rendezvous, None), None
            self._store.rendezvous, self._store.listener = roster.rendezvous, self._offer.take()
            if self._store.pid is not None:
                self._store.close_listener()
            return True
        if roster.independent:
            return True  # they meet nowhere; the first worker may be younger than the attempt
        host = next((member for member in roster.members if member.role == names.WORKER), roster.members[0])
        return (host.role, host.index) != (self._settings.role, self._settings.index)

    def by_agent(self, alone: bool) -> bool:
        """Return whether an agent serves the store, this one or another. False: rank 0 must open it itself.

        A script that is `alone` has no other rank to meet: groups of processes that it starts itself open stores of
        their own, and torch takes every store for served where the agent's is.
        """
        store = self._store
        if store is None:
            return True  # another agent's affair
        if not self._parent.stores or (alone and store.pid is None):
            store.close_listener()
        return store.listener is not None or store.pid is not None

    def serve(self) -> None:
        """Have the store served, if the ranks meet here and it is not served already.

        This is done after the ranks were started: they work for some 10 ms before they need it, and its socket listens.
        """
        store = self._store
        if store is not None and store.listener is not None and not store.identity:
            self._ask(store, store.listener)

    def get_ahead(self) -> None:
        """Have the store of the next attempt served, if the ranks meet here, and so will most probably again.

        This also ends the last store: the kernel has a core at it for 10 ms, which ranks that began would have missed.
        """
        self._end_last()
        in_use = self._store is not None and self._store.pid is not None
        if in_use and self._next is None and self._parent.ready and self._parent.stores:
            self._next = _Store(self._offer.rendezvous, None)
            self._ask(self._next, self._offer.listener)

    def _ask(self, store: _Store, listener: socket.socket) -> None:
        store.identity = next(self._identities)
        host, port = own_end(listener)
        self._parent.start({"start": "store", "id": store.identity, "host": host, "port": port}, [listener.fileno()])

    def drop(self) -> None:
        """End the store, if there is one."""
        self._retire()
        self._end_last()

    def _retire(self) -> None:
        """Put the store in use aside: the ranks that met there have gone."""
        self._end_last()
        self._last, self._store = self._store, None
        if self._last is not None:
            self._last.close_listener()

    def _end_last(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.pid is not None:
            process.kill_group(last.pid, signal.SIGKILL)

    def started(self, identity: int, pid: int) -> bool:
        """Note that a store's process runs; return False where no store has this identity."""
        store = next((one for one in (self._store, self._next) if one and one.identity == identity), None)
        if store is None:
            return False
        store.pid = pid
        store.close_listener()  # else a late rank could connect to a port that is not served any more
        return True

    def ended(self, identity: int) -> bool:
        """Note that a process has ended; return whether it was the store in use. Ranks that have met do not need it."""
        if self._next is not None and self._next.identity == identity:
            self._next = None
        if self._last is not None and self._last.identity == identity:
            self._last = None
        if self._store is None or self._store.identity != identity:
            return False
        self._store.close_listener()
        self._store = None
        return True

    def parent_lost(self) -> None:
        """Forget the stores, which died with the warm parent; one that was not started is kept for the next parent."""
        self._next = self._last = None
        if self._store is not None:
            self._store.identity = 0
            self._store = self._store if self._store.listener is not None else None
