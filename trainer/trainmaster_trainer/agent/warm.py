"""The warm parent: imports torch once and forks ranks from itself, so that a first step takes milliseconds.

Started by the agent (`--descriptor`, one agent) or by the local platform (`--socket`, shared by many agents):
`python -c names.WARM_PROGRAM`. What agents and it say to one another is in `parent`.
It only imports: no tensor, no CUDA context, no thread. Where a thread came up nevertheless, it spawns.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional, Sequence

from trainmaster.wire import names

from trainmaster_trainer.agent import imports, new_interpreter, process, rank_process, rehearsal
from trainmaster_trainer.agent.branch import BRANCH
from trainmaster_trainer.agent.channel import Channel, Received
from trainmaster_trainer.agent.children import Children, Rest

# On torch 2.15 a DDP script imports nothing more than this up to its second step, also where `session.state` keeps what
# it has. Each entry has been measured: torch._dynamo alone, which the first optimizer imports, takes as long as torch.
PRELOADED = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
    "safetensors.torch",
    "numpy",
    "trainmaster_trainer.rank",
    "trainmaster_trainer.scripts.script_state",
)

_BRANCH_SECONDS = 2.0  # for a branch to kill its ranks, which would leave behind what they had started
# A module that asks for a GPU at import must not initialise CUDA here: forked children could not use it.
_CAREFUL = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


@dataclass
class WarmClient:
    """WarmClient is an agent, and how many children it wants to stand by."""

    channel: Channel
    wanted: int = 0


@dataclass(frozen=True)
class Work:
    """Work says for which client a child works, and under which identity."""

    client: WarmClient
    identity: int


class WarmParent:
    """WarmParent is the loop. It has one thread: a fork copies one, and locks that another one held stay locked."""

    def __init__(self, listener: Optional[socket.socket], connection: Optional[socket.socket]) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._children = Children()
        self._work: Dict[int, Work] = {}  # by pid
        self._clients: List[WarmClient] = []
        self._stores = False
        self._ending = False
        self._pid = os.getpid()
        self._watch_signals()
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
        if connection is not None:
            self._add(connection)

    def serve(self, stores: bool) -> Optional[Rest]:
        """Serve until no agent needs this process any more. Return what to do in a forked child, else None."""
        self._stores = stores
        for client in self._clients:
            self._greet(client)
        while not self._ending:
            ready = self._selector.select(self._children.patience())
            for key, _ in ready:
                rest: Optional[Rest] = key.data()
                if rest is not None:
                    return rest
            rest = None if ready else self._children.use_leisure()
            if rest is not None:
                return rest
        self._kill([*self._work])
        process.wait_for([pid for pid, work in self._work.items() if work.identity < 0], _BRANCH_SECONDS)
        return None

    def watch_process(self, pid: int) -> None:
        """End with the process `pid` (the one whose agents share this warm parent)."""
        try:
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, self._end)
        except ProcessLookupError:
            self._ending = True

    # --- clients ---

    def _accept(self) -> None:
        if self._listener is not None:
            self._greet(self._add(self._listener.accept()[0]))

    def _add(self, connection: socket.socket) -> WarmClient:
        client = WarmClient(Channel(connection))
        self._clients.append(client)
        self._selector.register(client.channel, selectors.EVENT_READ, lambda: self._read(client))
        return client

    def _greet(self, client: WarmClient) -> None:
        _say(client, {"ready": True, "stores": self._stores, "pid": self._pid})

    def _read(self, client: WarmClient) -> Optional[Rest]:
        try:
            requests = client.channel.receive()
        except EOFError:
            self._lose(client)
            return None
        for request in requests:
            rest = self._handle(client, request)
            if rest is not None:
                return rest
        return None

    def _lose(self, client: WarmClient) -> None:
        """End the ranks of an agent that has gone."""
        self._selector.unregister(client.channel)
        self._clients.remove(client)
        self._count_wanted()
        self._kill([pid for pid, work in self._work.items() if work.client is client])
        client.channel.close()
        if self._listener is None:
            self._ending = True

    # --- requests ---

    def _handle(self, client: WarmClient, request: Received) -> Optional[Rest]:
        if "prepare" in request.message:
            client.wanted = request.message["prepare"]
            self._count_wanted()
            return None
        return self._start(client, request)

    def _count_wanted(self) -> None:
        self._children.want(sum(client.wanted for client in self._clients))

    def _start(self, client: WarmClient, request: Received) -> Optional[Rest]:
        identity = request.message["id"]
        try:
            if request.message["start"] == BRANCH:
                pid, rest = self._children.fork(lambda: branch(*request))
            else:
                pid, rest = self._children.start(request.message, request.descriptors)
        except OSError as error:
            _close(request.descriptors)
            _say(client, {"ended": identity, "failure": f"the process could not be started: {error}"})
            return None
        if rest is not None:
            return rest
        _close(request.descriptors)
        self._work[pid] = Work(client, identity)
        _say(client, {"started": identity, "pid": pid})
        return None

    # --- signals and ends ---

    def _watch_signals(self) -> None:
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        # Ctrl-C in a terminal goes to the whole foreground group; the agents decide what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._wake, selectors.EVENT_READ, self._reap)

    def _reap(self) -> None:
        """Tell the agents of all children that have ended, as SIGCHLD came."""
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        # The kernel gives them in the order of their starts. A death by SIGKILL is never another one's consequence.
        for end in sorted(self._children.reap(), key=lambda end: end.signal != "SIGKILL"):
            work = self._work.pop(end.pid)
            if work.client in self._clients:
                known = {"code": end.code, "signal": end.signal, "left_running": end.left_running}
                _say(work.client, {"ended": work.identity, **known})

    def _kill(self, pids: List[int]) -> None:
        for pid in pids:
            if self._work[pid].identity < 0:  # a branch has ranks of its own to kill, and may be stopped
                process.kill_group(pid, signal.SIGTERM)
                process.kill_group(pid, signal.SIGCONT)
            else:
                process.kill_group(pid, signal.SIGKILL)

    def _end(self) -> None:
        self._ending = True


def _say(client: WarmClient, message: Dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # its end of file is seen by the loop
        client.channel.send(message)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def preload(modules: Sequence[str]) -> None:
    """Import what is there of `modules`. What is missing or broken is the rank's affair, with the rank's message."""
    gc.disable()  # imports make much and drop little: collecting meanwhile costs a tenth of their time
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            pass
        except BaseException as error:  # noqa: BLE001 an import may even call sys.exit
            sys.stderr.write(f"trainmaster: {module} was not preloaded: {type(error).__name__}: {error}\n")
    gc.enable()


def branch(message: Dict[str, Any], descriptors: List[int]) -> Rest:
    """Make a forked child a warm parent for one agent, which imports more than the first one."""
    (connection,) = descriptors
    process.close_descriptors(keep=[connection])
    process.rename("tm-warm-task")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # what imports print, the rank that did it first has printed
        os.dup2(nothing, standard)
    os.close(nothing)
    os.environ.clear()
    os.environ.update({**message["environment"], **_CAREFUL})
    for stream in (sys.stdout, sys.stderr):  # a library may keep them, and the last lines of a rank with them
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    process.first_to_go()
    return lambda: _grow(socket.socket(fileno=connection), message)


def _grow(connection: socket.socket, message: Dict[str, Any]) -> int:
    gc.disable()
    try:
        os.chdir(message["folder"] or ".")
        imports.repeat(Path(message["imports"]).read_text().splitlines(), message["differing"])
    except (OSError, ValueError, imports.ChangedError) as error:
        with contextlib.suppress(OSError):
            Channel(connection).send({"failed": str(error)})
        os._exit(1)  # whatever the libraries want to do at an end, it is not theirs
    gc.enable()
    gc.collect()
    gc.freeze()
    parent = WarmParent(None, connection)  # kept: collected in a rank, it would close descriptors that are the rank's
    rest = parent.serve(stores=False)
    if rest is None:
        os._exit(0)
    return rest()


def can_serve_stores() -> bool:
    """Return whether a forked child can open torch's TCPStore on a socket that it was given."""
    store = getattr(sys.modules.get("torch.distributed"), "TCPStore", None)
    initializer = getattr(store, "__init__", None)
    return process.threads() == 1 and "master_listen_fd" in (getattr(initializer, "__doc__", None) or "")


def main() -> NoReturn:
    """Serve until no agent needs this process. A forked child does here what it was forked for, and ends."""
    options = _options()
    told = int(os.environ.get(names.ENV_PARENT_PID) or 0) if options.socket else 0
    if options.descriptor is not None or told == os.getppid():
        process.die_with_parent(os.getppid())
    # Set before any import: a library's thread pool would make every fork unsafe.
    ours = {**dict.fromkeys(rank_process.THREAD_LIMITS, "1"), **_CAREFUL}
    os.environ.update(ours)
    parent = _open(options)
    if told:
        parent.watch_process(told)
    with new_interpreter.watched({**names.WARM_ENVIRONMENT, **ours}):
        if not options.bare:
            extra = [name.strip() for name in os.environ.get(names.ENV_PRELOAD, "").split(",") if name.strip()]
            preload(PRELOADED)
            new_interpreter.unbidden_so_far()
            preload(extra)
            rehearsal.look_up()
    gc.collect()
    gc.freeze()
    # The loop sees the end of its channel. What it then kills, the kernel would leave: ranks' own children.
    process.wake_with_parent()
    rest = parent.serve(stores=can_serve_stores())
    process.leave(rest() if rest is not None else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainmaster_trainer.agent.warm", description=__doc__)
    parser.add_argument(
        "module", nargs="?", help="its own name, which is not looked at: for people who look at processes"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", help="path of the unix socket to listen on")
    where.add_argument("--descriptor", type=int, help="an inherited, connected unix socket")
    parser.add_argument("--bare", action="store_true", help="import nothing beforehand")
    return parser.parse_args()


def _open(options: argparse.Namespace) -> WarmParent:
    if options.descriptor is not None:
        connection = socket.socket(fileno=options.descriptor)
        if _is_closed(connection):
            process.leave(0)  # the agent ended before the kernel was asked to tell
        return WarmParent(None, connection)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options.socket)
    listener.listen(1024)
    return WarmParent(listener, None)


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other end has gone."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


if __name__ == "__main__":
    main()
