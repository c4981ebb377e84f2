"""The warm parent: imports torch once and forks ranks from itself, so that a first step takes milliseconds.

Started by the agent (`--descriptor`, one agent) or by the local hand (`--socket`, shared by many agents):
`python -m trainmaster_trainer.agent.warm`. What agents and it say to one another is in `parent.py`.
It only imports: no tensor, no CUDA context, no thread. Where a thread came up nevertheless, it spawns.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainmaster.wire import names
from trainmaster_trainer.agent import process, rank
from trainmaster_trainer.agent.channel import Channel, Received

# Measured on torch 2.15: all that a script imports later than `import torch` up to its second DDP step.
PRELOADED = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
    "safetensors.torch",
    "numpy",
    "trainmaster_trainer.rank",
)
_Rest = Callable[[], int]  # what a forked child goes on with, after the loop has been left


@dataclass
class Child:
    """A process that was started for an agent."""

    channel: Channel
    id: int


class WarmParent:
    """The loop. Single-threaded: a fork copies one thread, and every lock that another one held stays locked."""

    def __init__(self, listener: Optional[socket.socket], connection: Optional[socket.socket]) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._children: Dict[int, Child] = {}
        self._stores = False
        self._ending = False
        self._channels: List[Channel] = []
        self._watch_signals()
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
        if connection is not None:
            self._add(connection)

    def serve(self, stores: bool) -> Optional[_Rest]:
        """Serve until nobody needs this process any more. In a forked child: what the child is to do."""
        self._stores = stores
        for channel in self._channels:
            self._greet(channel)
        while not self._ending:
            for key, _ in self._selector.select():
                rest: Optional[_Rest] = key.data()
                if rest is not None:
                    return rest
        self._end_children([*self._children])
        return None

    def watch_process(self, pid: int) -> None:
        """End with the process `pid` (the one whose agents share this warm parent)."""
        try:
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, self._end)
        except ProcessLookupError:
            self._ending = True

    # --- connections ---

    def _accept(self) -> None:
        assert self._listener is not None
        self._greet(self._add(self._listener.accept()[0]))

    def _add(self, connection: socket.socket) -> Channel:
        channel = Channel(connection)
        self._channels.append(channel)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._read(channel))
        return channel

    def _greet(self, channel: Channel) -> None:
        self._say(channel, {"ready": True, "stores": self._stores, "pid": os.getpid()})

    def _say(self, channel: Channel, message: Dict[str, Any]) -> None:
        try:
            channel.send(message)
        except OSError:
            pass  # its end of file is seen by the loop

    def _read(self, channel: Channel) -> Optional[_Rest]:
        try:
            requests = channel.receive()
        except EOFError:
            self._lose(channel)
            return None
        for request in requests:
            rest = self._start(channel, request)
            if rest is not None:
                return rest
        return None

    def _lose(self, channel: Channel) -> None:
        """An agent has gone: so do its ranks."""
        self._selector.unregister(channel)
        self._channels.remove(channel)
        self._end_children([pid for pid, child in self._children.items() if child.channel is channel])
        channel.close()
        if self._listener is None:
            self._ending = True

    # --- children ---

    def _start(self, channel: Channel, request: Received) -> Optional[_Rest]:
        message, descriptors = request
        try:
            pid, rest = self._fork_or_spawn(message, descriptors)
        except OSError as error:
            self._say(channel, {"ended": message["id"], "failure": f"the process could not be started: {error}"})
            return None
        finally:
            if os.getpid() == self._pid:
                for descriptor in descriptors:
                    os.close(descriptor)
        if rest is None:
            self._children[pid] = Child(channel, message["id"])
            self._say(channel, {"started": message["id"], "pid": pid})
        return rest

    def _fork_or_spawn(self, message: Dict[str, Any], descriptors: List[int]) -> Tuple[int, Optional[_Rest]]:
        if process.threads() > 1:
            return rank.spawn(message, descriptors), None
        pid = process.fork()
        if pid == 0:
            return 0, rank.entered(message, descriptors, self._pid)
        return pid, None

    def _reap(self) -> None:
        """SIGCHLD came: tell the agents of all children that have ended."""
        self._drain()
        while self._children:
            end = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                return
            if end.si_code != os.CLD_EXITED or end.si_status != 0:
                # What it had started must not hold its sockets open. Not yet reaped, so the number is still its own.
                process.kill_group(end.si_pid, signal.SIGKILL)
            os.waitpid(end.si_pid, 0)
            self._tell(end)

    def _tell(self, end: os.waitid_result) -> None:
        child = self._children.pop(end.si_pid, None)
        if child is None or child.channel not in self._channels:
            return
        if end.si_code == os.CLD_EXITED:
            self._say(child.channel, {"ended": child.id, "code": end.si_status})
        else:
            self._say(child.channel, {"ended": child.id, "signal": signal.Signals(end.si_status).name})

    def _end_children(self, pids: List[int]) -> None:
        for pid in pids:
            process.kill_group(pid, signal.SIGKILL)

    # --- signals ---

    def _watch_signals(self) -> None:
        self._pid = os.getpid()
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._waker = wake  # kept: the descriptor lives as long as the object
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        # Ctrl-C in a terminal goes to the whole foreground group; the agents decide what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._wake, selectors.EVENT_READ, self._reap)

    def _drain(self) -> None:
        try:
            while self._wake.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _end(self) -> None:
        self._ending = True


def preload(modules: List[str]) -> None:
    """Import what is there of `modules`. What is missing or broken is the rank's affair, with the rank's message."""
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:  # an import may even call sys.exit
            if not isinstance(error, ModuleNotFoundError):
                print(f"trainmaster: {module} was not preloaded: {type(error).__name__}: {error}", file=sys.stderr)


def can_serve_stores() -> bool:
    """Whether a forked child can open torch's TCPStore on a socket that it was given."""
    distributed = sys.modules.get("torch.distributed")
    store = getattr(distributed, "TCPStore", None)
    return process.threads() == 1 and "master_listen_fd" in (getattr(store.__init__, "__doc__", None) or "")


def main() -> int:
    """Serve until nobody needs this process. Returns an exit code, in a forked child that of the rank."""
    options = _options()
    if options.descriptor is not None:
        process.die_with_parent(os.getppid())
    # Set before any import: a library's thread pool would make every fork unsafe.
    os.environ.update({name: "1" for name in rank.THREAD_LIMITS})
    parent = _open(options)
    if os.environ.get(names.ENV_PARENT_PID) and options.socket:
        parent.watch_process(int(os.environ[names.ENV_PARENT_PID]))
    if not options.bare:
        extra = [name.strip() for name in os.environ.get(names.ENV_PRELOAD, "").split(",") if name.strip()]
        preload([*PRELOADED, *extra])
    gc.collect()
    gc.freeze()
    rest = parent.serve(stores=can_serve_stores())
    return rest() if rest is not None else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainmaster_trainer.agent.warm", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", help="path of the unix socket to listen on")
    where.add_argument("--descriptor", type=int, help="an inherited, connected unix socket")
    parser.add_argument("--bare", action="store_true", help="import nothing beforehand")
    return parser.parse_args()


def _open(options: argparse.Namespace) -> WarmParent:
    if options.descriptor is not None:
        return WarmParent(None, socket.socket(fileno=options.descriptor))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options.socket)
    listener.listen(1024)
    return WarmParent(listener, None)


if __name__ == "__main__":
    sys.exit(main())
