"""Define what an adapter is told, and what it answers."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from trainmaster.wire import launcher_line, names
from trainmaster.wire.messages import Roster
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent.attempt_files import FRAMEWORK_FOLDER
from trainmaster_trainer.agent.command import python_of
from trainmaster_trainer.agent.companions import Companion


@dataclass(frozen=True)
class PeerPosition:
    """A peer is one process of the group. Its port is free, and all others know it before the process exists."""

    role: str
    rank: int
    address: str
    port: int
    replica: int  # the place of its replica in the roster
    local: int  # its place within the replica

    @property
    def at(self) -> str:
        """Return host and port as most frameworks write them."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Position:
    """Position says who takes part in an attempt, in rank order, and which of them this process is."""

    peers: Tuple[PeerPosition, ...]
    rank: int
    strategy: str
    attempt: int
    key: str  # random, of this attempt: a secret that all its processes have
    folder: str  # for files of this rank and attempt
    interface: str  # the network interface that has its address
    threads: int  # its share of the cores
    slots: int  # processes that a launcher may start in each replica
    environment: Mapping[str, str]  # the rank's, with the variables of the user
    command: Tuple[str, ...]  # the user's
    arguments: Mapping[str, Any]  # the user's, where the framework has such
    interpreter: str  # the Python of the user's command: it has the framework

    @property
    def me(self) -> PeerPosition:
        """Return this process."""
        return self.peers[self.rank]

    @property
    def first(self) -> PeerPosition:
        """Return the process that leads where one does, and beside which companions run."""
        return self.peers[0]

    @property
    def leads(self) -> bool:
        """Return whether this process is the first."""
        return self.rank == 0

    @property
    def replicas(self) -> Dict[int, List[PeerPosition]]:
        """Return the processes of each replica, by its place in the roster."""
        found: Dict[int, List[PeerPosition]] = {}
        for peer in self.peers:
            found.setdefault(peer.replica, []).append(peer)
        return found


@dataclass(frozen=True)
class Instructions:
    """Instructions are what a rank needs before its script begins. Empty members ask for nothing."""

    variables: Mapping[str, str] = field(default_factory=dict)  # of this attempt: no user can know better
    defaults: Mapping[str, str] = field(default_factory=dict)  # unless the user has set them
    files: Mapping[str, str] = field(default_factory=dict)  # below the position's folder
    command: Tuple[str, ...] = ()  # in place of the user's
    companions: Tuple[Companion, ...] = ()
    launches: bool = False  # the command starts processes in groups of their own, which are to end with it
    temporary: Tuple[str, ...] = ()  # folders outside of the attempt's, removed when it launches no more
    awaits: str = ""  # no script begins before this companion of the first rank accepts connections


def position_of(plan: TrainingPlan, roster: Roster, environment: Mapping[str, str]) -> Position:
    """Return the position of the process that has this environment (`agent/environment.py`)."""
    peers = tuple(
        PeerPosition(member.role, member.first_rank + local, member.address, port, number, local)
        for number, member in enumerate(roster.members)
        for local, port in enumerate(member.ports)
    )
    rank = int(environment["RANK"])
    threads = environment.get("OMP_NUM_THREADS", "")
    return Position(
        peers=peers,
        rank=rank,
        strategy=plan.strategy,
        attempt=roster.attempt,
        key=roster.rendezvous.key,
        folder=str(Path(environment[names.ENV_ERROR_FILE]).parent / f"{FRAMEWORK_FOLDER}{rank}"),
        interface=environment.get("GLOO_SOCKET_IFNAME", "eth0"),
        threads=int(threads) if threads.isdigit() else 1,
        slots=plan.slots or 1,
        environment=environment,
        command=tuple(plan.command),
        arguments=plan.arguments,
        interpreter=interpreter_of(plan.command),
    )


def interpreter_of(command: Sequence[str]) -> str:
    """Return the Python that a command names by its path, ours where that runs it, else the first in PATH."""
    if launcher_line.is_python(command[0]) or launcher_line.read(command) is not None:
        return python_of(command[0], sys.executable)
    return shutil.which("python3") or sys.executable
