"""Offer a socket at which the ranks of the next attempt meet. It listens already, so no other process has its port.

The agent of the first worker gives the socket to a store process when the offer is taken; every offer is taken at most
once. Where members come and go one by one, the offer also holds a socket for each rank of this replica: its peers know
the port before the rank exists, and no start ever gets that of an older one. For a framework whose processes open their
own servers these sockets only keep the ports, and do not listen: who connects is refused until the server is there.
"""

from __future__ import annotations

import fcntl
import ipaddress
import secrets
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple, Union

from trainmaster.wire.messages import Rendezvous

_SIOCGIFADDR = 0x8915
_BACKLOG = 4096
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 nothing is bound to these here


class Offer:
    """Offer is a listening socket and a random key, and `ranks` more sockets for peers."""

    def __init__(self, address: str, log: Callable[[str], None], ranks: int = 0, listening: bool = True) -> None:
        self._address = address
        self._log = log
        self._socket = self._listen()
        self._make_door = self._listen if listening else self._bind
        self._doors = [self._make_door() for _ in range(ranks)]
        self.rendezvous = self._describe()

    @property
    def listener(self) -> socket.socket:
        """Return the socket behind the present offer, to be lent and not to be closed."""
        return self._socket

    def take(self) -> socket.socket:
        """Return the socket behind the present offer; a fresh offer is made at once."""
        taken = self._socket
        self._socket = self._listen()
        self.rendezvous = self._describe()
        return taken

    def take_ports(self, ports: Sequence[int]) -> Optional[List[socket.socket]]:
        """Return the sockets behind `ports`, and offer fresh ones at once. None: these are not, or no more, offered."""
        if tuple(ports) != self.rendezvous.ports:
            return None
        taken = self._doors
        self._doors = [self._make_door() for _ in taken]  # while the old ones are open: no number comes twice in a row
        self.rendezvous = replace(self.rendezvous, ports=_ports(self._doors))
        return taken

    def _describe(self) -> Rendezvous:
        return Rendezvous(self._socket.getsockname()[1], secrets.token_hex(16), _ports(self._doors))

    def _listen(self) -> socket.socket:
        listener = self._bind()
        listener.listen(_BACKLOG)
        return listener

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        listener = socket.socket(family)
        try:
            listener.bind((self._address, 0))
        except OSError as error:
            # Behind an address translation the own address is on no interface.
            self._log(f"{self._address} is no address of this machine ({error.strerror}); listening on all")
            self._address = ""
            listener.bind(("", 0))
        return listener


def _ports(sockets: Sequence[socket.socket]) -> Tuple[int, ...]:
    return tuple(one.getsockname()[1] for one in sockets)


def own_end(listener: socket.socket) -> Tuple[str, int]:
    """Return host and port under which this machine itself reaches a listening socket."""
    host, port = listener.getsockname()[:2]
    return _LOOPBACK.get(host, host), port


def interface_of(address: str) -> Optional[str]:
    """Return the network interface that has `address`, or None: gloo falls back to loopback without being told."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return None
    for _, name in socket.if_nameindex():
        if _has_address(name, wanted):
            return name
    # 127.0.0.2 and the like are on no interface by name.
    return "lo" if wanted.is_loopback else None


def _has_address(name: str, wanted: Union[ipaddress.IPv4Address, ipaddress.IPv6Address]) -> bool:
    if isinstance(wanted, ipaddress.IPv6Address):
        return any(number == wanted.packed.hex() and name == owner for number, owner in _ipv6_addresses())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return False
    return answer[20:24] == wanted.packed


def _ipv6_addresses() -> List[Tuple[str, str]]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    return [(line.split()[0], line.split()[-1]) for line in lines]
