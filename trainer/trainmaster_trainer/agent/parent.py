"""Hold the agent's channel to the warm parent: the one of the local platform, or one that it starts itself.

What goes over the channel (JSON, see `channel`):
    {"start": "rank", "id", "environment"}  + stdout, stderr (, listener)   agent to parent
    {"start": "store", "id", "host", "port"}  + listener
    {"prepare": count}                                                 how many children should stand by
    {"start": "branch", "id", "imports", "folder", "environment", "differing"}  + its end of a channel, see `branch`
    {"ready": true, "stores", "pid"}                                   parent to agent
    {"started": id, "pid"}   {"ended": id, "code" | "signal" | "failure", "left_running"}
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from typing import Any, Callable, Dict, Optional, Sequence

from trainmaster.wire import names

from trainmaster_trainer.agent import process, stacks
from trainmaster_trainer.agent.branch import BRANCH, Branch
from trainmaster_trainer.agent.channel import Channel
from trainmaster_trainer.agent.parent_watch import SENDING_SECONDS, Pulse
from trainmaster_trainer.agent.reactor import Reactor

_SHARED_PATIENCE_SECONDS = 5.0
_SHARED_RETRY_SECONDS = 0.05
# So many deaths before it was ready, and the next one imports nothing: slow ranks are better than none.
_BARE_AFTER = 2
# So many, and it never will be: the image is broken. The bare one has failed as well then, over some 10 s.
_HOPELESS_AFTER = 6
_LONGEST_PAUSE_SECONDS = 5.0
# Imports from a cold network disk may take minutes; an import that waits for something never ends.
_READY_PATIENCE_SECONDS = 600.0

LOST = {
    "signal": "SIGKILL",
    "failure": "the process from which this rank was forked has died, and the rank with it",
    "type": "WarmParentLost",
}

Log = Callable[[str], None]


class WarmListener:
    """A listener wants to know what the warm parent says. `ranks.Ranks` is one."""

    def parent_ready(self) -> None:
        """Note that the warm parent has imported what it could, and starts processes from now on."""

    def parent_lost(self) -> None:
        """Note that the warm parent has died, and everything that it had started with it."""

    def parent_hopeless(self) -> None:
        """Note that the warm parent has died again and again before it was ready. No other one is started."""

    def started(self, identity: int, pid: int) -> None:
        """Note that a process that was asked for runs."""

    def ended(self, identity: int, end: Dict[str, Any]) -> None:
        """Note that a process has ended, or could not be started (`failure`)."""


class Parent:
    """A warm parent that is there as soon and as long as can be."""

    def __init__(self, reactor: Reactor, listener: WarmListener, shared: Optional[str], prepare: int, log: Log) -> None:
        self.ready = False
        self.stores = False
        self._reactor = reactor
        self._listener = listener
        self._shared = shared
        self._prepare = prepare
        self._log = log
        self._channel: Optional[Channel] = None
        self._failures = 0
        self._closed = False
        self._pid: Optional[int] = None
        self._pulse = Pulse(reactor, self._give_up)
        self._branch = Branch(reactor, self._handle, self._share_children, log)

    def open(self) -> None:
        """Connect to the shared warm parent, or start one."""
        if self._shared is None:
            self._start_own()
        else:
            self._connect(self._shared, time.monotonic() + _SHARED_PATIENCE_SECONDS)

    def start(self, request: Dict[str, Any], descriptors: Sequence[int]) -> None:
        """Have a process started. Call it only when `ready`; a broken channel shows itself as `parent_lost`."""
        if request.get("start") == "rank" and self._branch.takes_ranks:
            self._branch.send(request, descriptors)
        elif self._channel is not None:
            self._pulse.ask(self._channel, request, descriptors)

    @property
    def may_branch(self) -> bool:
        """Return whether ranks would be started sooner if they found their task's libraries imported."""
        return self.ready and not self._branch.exists and not self._branch.failed

    def branch_off(
        self, notes: str, folder: Optional[str], environment: Dict[str, str], differing: Sequence[str]
    ) -> None:
        """Have a process forked that imports what is noted in a file, and start ranks there when it has done so.

        Raises:
            OSError: there can be no channel to it.
        """
        ours, theirs = socket.socketpair()
        request = {"imports": notes, "environment": environment, "differing": list(differing), "folder": folder}
        self.start({"start": BRANCH, "id": self._branch.use(ours), **request}, [theirs.fileno()])
        theirs.close()

    def distrust(self, identity: int) -> None:
        """Note that a rank failed before its first step, for which the branch may be the reason."""
        self._branch.distrust(identity)

    def _share_children(self) -> None:
        """Have children stand by where ranks are started."""
        if self._branch.takes_ranks:
            self._branch.send({"prepare": self._prepare})
        if self.ready:
            self.start({"prepare": 0 if self._branch.takes_ranks else self._prepare}, [])

    def close(self) -> None:
        """Close the channel: the other end kills all that was started over it."""
        self._closed = True
        if self._pid is not None and stacks.is_stopped(self._pid):
            process.kill_group(self._pid, signal.SIGKILL)
        self._drop()

    def _connect(self, path: str, until: float) -> None:
        if self._closed:
            return
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if time.monotonic() < until:
                self._reactor.after(_SHARED_RETRY_SECONDS, lambda: self._connect(path, until))
                return
            self._log(f"the shared warm parent at {path} cannot be reached ({error}); starting an own one")
            self._start_own()
            return
        # SO_PEERCRED (unix(7)) tells the pid of the listener at the other end; it is 0 where it is hidden from us.
        layout = struct.Struct("3i")
        pid, _, _ = layout.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
        self._pid = pid or None  # it may be stopped before it says that it is ready
        self._use(connection)

    def _start_own(self) -> None:
        if self._closed:
            return
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        fixed = [sys.executable, "-c", names.WARM_PROGRAM, names.WARM_MODULE]
        arguments = [*fixed, "--descriptor", str(theirs.fileno())]
        if self._failures >= _BARE_AFTER:
            arguments.append("--bare")
        # Its stdout is not the ranks' (theirs come through pipes): what imports print belongs to the log.
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
        environment = {**names.WARM_ENVIRONMENT, **os.environ}
        self._pid = os.posix_spawn(sys.executable, arguments, environment, file_actions=actions, setsid=True)
        theirs.close()
        self._use(ours)

    def _use(self, connection: socket.socket) -> None:
        channel = self._channel = Channel(connection, SENDING_SECONDS)
        self._reactor.watch(channel.fileno(), lambda: self._read(channel))
        self._pulse.begin()
        self._pulse.is_of(self._pid)
        self._reactor.after(_READY_PATIENCE_SECONDS, lambda: self._lose_patience(channel))

    def _lose_patience(self, channel: Channel) -> None:
        if channel is not self._channel or self.ready:
            return
        self._give_up("has not come up")

    def _give_up(self, why: str) -> None:
        """Give the warm parent up. Ranks that it has forked end with it, or with the channel to it."""
        self._log(f"the warm parent {why}")
        if self._pid is not None and (self._shared is None or not self.ready or stacks.is_stopped(self._pid)):
            process.kill_group(self._pid, signal.SIGKILL)
        self._lost()

    def _read(self, channel: Channel) -> None:
        try:
            received = channel.receive()
        except EOFError:
            self._lost()
            return
        for message, _ in received:
            self._pulse.heard(message)
            self._handle(message)
        if received and channel is self._channel:  # that it has gone may be known too, and comes before other news
            self._read(channel)

    def _handle(self, message: Dict[str, Any]) -> None:
        if "ready" in message:
            self.ready, self.stores, self._failures = True, message["stores"], 0
            self._pulse.is_of(message["pid"])
            self._share_children()
            self._listener.parent_ready()
        elif "started" in message and message["started"] > 0:
            self._listener.started(message["started"], message["pid"])
        elif "ended" in message and message["ended"] > 0:
            self._listener.ended(message["ended"], LOST if message.get("lost") else message)
        elif message.get("ended") == self._branch.identity:
            self._branch.lost()

    def _lost(self) -> None:
        was_ready = self.ready
        self._drop()
        self._shared = self._pid = None
        self._failures += 0 if was_ready else 1
        hopeless = self._failures >= _HOPELESS_AFTER
        if not hopeless:
            pause = 0.0 if was_ready else min(0.1 * 2**self._failures, _LONGEST_PAUSE_SECONDS)
            self._log("the warm parent has gone; starting a new one")
            self._reactor.after(pause, self._start_own)
        self._listener.parent_lost()
        if hopeless:
            # The agent itself runs without these variables of the user's.
            found = sorted(
                name for name, value in os.environ.items() if value and name.startswith(("PYTHONHOME", "LD_"))
            )
            question = f" Are these variables right: {', '.join(found)}?" if found else ""
            self._log(
                f"the process that ranks are forked from has died {self._failures} times at its start; what it wrote "
                "above says why. Does this image have a working Python, and all of trainmaster_trainer?" + question
            )
            self._listener.parent_hopeless()

    def _drop(self) -> None:
        self.ready = False
        self._pulse.end()
        self._branch.close()
        if self._channel is not None:
            self._reactor.unwatch(self._channel.fileno())
            self._channel.close()
            self._channel = None
