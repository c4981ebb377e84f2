"""A roster file, listening sockets and services in this process: the least that peers need to find one another."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster_trainer.transport.directory import Directory
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller, Identity, identify
from trainmaster_trainer.transport.links import Links
from trainmaster_trainer.transport.service import Handler, Service

KEY = "the key of this attempt"
HOST = "127.0.0.1"


def listen(port: int = 0) -> socket.socket:
    """A socket that listens, as the agent opens one for each rank."""
    return socket.create_server((HOST, port), backlog=64)


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def echo(caller: Caller, request: Message) -> Message:
    """Gives back what came, and who asked."""
    return Message("echo", {**request.values, "caller": caller.rank}, request.tensors)


def write_roster(path: Path, roster: Roster) -> None:
    """Replace the file as the agent does."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(codec.encode(roster))
    temporary.rename(path)


def worker(rank: int, port: int, start: int = 0, role: str = names.WORKER) -> Member:
    return Member(role, rank, 0, HOST, rank, 1, (port,), start)


def roster_of(members: list[Member], attempt: int = 1, key: str = KEY) -> Roster:
    return Roster(attempt, tuple(members), HOST, Rendezvous(1, key), independent=True)


@dataclass
class Town:
    """Services by rank, all in one roster."""

    path: Path
    shares_memory: bool = True
    roster: Roster = field(default_factory=lambda: roster_of([]))
    services: dict[int, Service] = field(default_factory=dict)
    open_links: list[Links] = field(default_factory=list)

    def settle(self, rank: int, handler: Handler = echo, listener: socket.socket | None = None, **more: Any) -> Service:
        """Start a service, and name it in the roster."""
        listener = listener or listen()
        others = [member for member in self.roster.members if member.first_rank != rank]
        before = len(self.roster.members) - len(others)
        members = (*others, worker(rank, port_of(listener), start=before))
        self.roster = replace(self.roster, members=members)
        write_roster(self.path, self.roster)
        self.services[rank] = Service(listener, self.identity(rank), handler, **more)
        return self.services[rank]

    def identity(self, rank: int) -> Identity:
        """Of a rank in the roster's attempt."""
        return identify(rank, self.roster.attempt, self.roster.rendezvous.key)

    def links(self, rank: int) -> Links:
        """The asking side of a rank."""
        links = Links(self.identity(rank), Directory(self.path), shares_memory=self.shares_memory)
        self.open_links.append(links)
        return links

    def close(self) -> None:
        """End them all."""
        for links in self.open_links:
            links.close()
        for service in self.services.values():
            service.close()
