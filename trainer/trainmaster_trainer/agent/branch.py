"""Talk to a branch of the warm parent: a process forked from it that has imported what the task imports.

Ranks are started here as soon as there is a branch. It says what a warm parent says, and:
    {"failed": why}                                                    there is none: ranks could tell a difference
What is started here dies with it, and it dies with the warm parent.
"""

from __future__ import annotations

import signal
import socket
from typing import Any, Callable, Dict, Optional, Sequence, Set

from trainmaster_trainer.agent import process
from trainmaster_trainer.agent.channel import Channel
from trainmaster_trainer.agent.parent_watch import SENDING_SECONDS, Pulse
from trainmaster_trainer.agent.reactor import Reactor

BRANCH = "branch"  # what the warm parent is asked to start


class Branch:
    """Branch is the channel to at most one branch at a time.

    `tell` gets its messages; `changed` is called when ranks can be started there from now on, or no more.
    """

    def __init__(
        self,
        reactor: Reactor,
        tell: Callable[[Dict[str, Any]], None],
        changed: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._tell = tell
        self._changed = changed
        self._log = log
        self._channel: Optional[Channel] = None
        self.identity = 0  # of the newest one, below 0; ranks and stores count from 1
        self._ready = False
        self._distrusted = False
        self._live: Set[int] = set()
        self._pid: Optional[int] = None
        self._pulse = Pulse(reactor, self._give_up)

    @property
    def exists(self) -> bool:
        """Return whether there is a branch, or will be."""
        return self._channel is not None

    @property
    def takes_ranks(self) -> bool:
        """Return whether ranks are to be started here."""
        return self._ready and not self._distrusted

    @property
    def failed(self) -> bool:
        """Return whether there was a branch that was of no use: the next one would be of none either."""
        return self._distrusted

    def use(self, connection: socket.socket) -> int:
        """Watch our end of the channel to a branch that is being made; return the branch's identity."""
        channel = self._channel = Channel(connection, SENDING_SECONDS)
        self._reactor.watch(channel.fileno(), lambda: self._read(channel))
        self._pulse.begin()
        self.identity -= 1
        return self.identity

    def send(self, message: Dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a message. A broken channel shows itself as the end of all that was started over it."""
        if "id" in message:
            self._live.add(message["id"])
        if self._channel is not None:
            self._pulse.ask(self._channel, message, descriptors)

    def distrust(self, identity: int) -> None:
        """Start no more ranks here if this rank, which ended before its first step, was started here."""
        if identity in self._live and not self._distrusted:
            self._distrusted = True
            self._log("ranks import the task's libraries themselves from here on")
            self._changed()

    def close(self) -> None:
        """Close the channel, which ends the branch and all that was started over it."""
        self._ready = False
        self._pulse.end()
        self._live.clear()
        if self._channel is not None:
            self._reactor.unwatch(self._channel.fileno())
            self._channel.close()
            self._channel = None

    def lost(self) -> None:
        """Report the ranks as ended: the branch has ended, and its ranks with it."""
        if self._channel is None:
            return  # that is known
        died = sorted(self._live)
        self._distrusted = self._distrusted or not self._ready  # it would die of its imports again
        self.close()
        self._changed()
        for identity in died:
            self._tell({"ended": identity, "lost": True})

    def _read(self, channel: Channel) -> None:
        try:
            received = channel.receive()
        except EOFError:
            self.lost()
            return
        for message, _ in received:
            self._pulse.heard(message)
            self._handle(message)

    def _give_up(self, why: str) -> None:
        self._log(f"the process that has imported the task's libraries {why}")
        if self._pid is not None:
            process.kill_group(self._pid, signal.SIGKILL)
        self.lost()

    def _handle(self, message: Dict[str, Any]) -> None:
        if "failed" in message:
            self._distrusted = True
            self._log(f"each restart imports the task's libraries anew: {message['failed']}")
        elif "ready" in message:
            self._ready, self._pid = True, message["pid"]
            self._pulse.is_of(self._pid)
            self._changed()
        else:
            self._tell(message)
            self._live.discard(message.get("ended", self.identity))
        if self._distrusted and not self._live:
            self.close()
