"""Loopback ports for processes that tests start, which open them a moment later."""

import itertools
import socket
from contextlib import suppress

# They lie below those that the kernel gives to connections: such a one may be taken before its process opens it.
_PORTS = range(20_000, 30_000)
_OURS: dict[int, socket.socket] = {}  # by port: a name in the kernel that is this process's for as long as it lives
_NEXT = itertools.cycle(_PORTS)


def free_port() -> int:
    """A loopback port that nobody uses now, and that no other process of tests on this machine is given."""
    for port in itertools.islice(_NEXT, len(_PORTS)):
        with suppress(OSError), socket.socket() as probe:
            _claim(port)
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def _claim(port: int) -> None:
    """Claim a port, once.

    Raises:
        OSError: another process of tests has it.
    """
    if port not in _OURS:
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0trainmaster-test-port-{port}")
        except OSError:
            name.close()
            raise
        _OURS[port] = name
