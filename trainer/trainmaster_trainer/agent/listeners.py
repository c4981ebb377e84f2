"""Keep the listening sockets of ranks that peers reach one by one, from the offer to the rank's process.

A rank inherits its socket (ENV_LISTEN). The agent keeps its own copy until the process is known to
have one: a lost warm parent is asked again. No longer, or a dead rank's port would still take connections.
"""

from __future__ import annotations

import socket
from typing import Dict, List, Sequence


class Listeners:
    """Listeners holds sockets by rank number; none for ranks that form a group."""

    def __init__(self, first_rank: int = 0, sockets: Sequence[socket.socket] = ()) -> None:
        self._sockets: Dict[int, socket.socket] = {first_rank + index: one for index, one in enumerate(sockets)}

    def descriptors(self, number: int) -> List[int]:
        """Return what is handed over with the request to start the rank: one descriptor, or none."""
        listener = self._sockets.get(number)
        return [] if listener is None else [listener.fileno()]

    def drop(self, number: int) -> None:
        """Close our copy of a rank's socket: the rank's process has its own, or will never need it."""
        listener = self._sockets.pop(number, None)
        if listener is not None:
            listener.close()

    def drop_all(self) -> None:
        """Close all sockets: the start is over."""
        for number in [*self._sockets]:
            self.drop(number)
