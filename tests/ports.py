"""Loopback ports for processes that tests start, which open them a moment later."""

import itertools
import os
import socket
from contextlib import suppress

_OF_A_PROCESS = 2000
# Of pytest-xdist's processes each has its own, and the one that runs all tests by itself the last. They lie below those
# that the kernel gives to connections: such a one may be taken before its process opens it.
_BLOCK = int(os.environ.get("PYTEST_XDIST_WORKER", "gw4").removeprefix("gw")) % 5
_PORTS = itertools.cycle(range(20_000 + _BLOCK * _OF_A_PROCESS, 20_000 + (_BLOCK + 1) * _OF_A_PROCESS))


def free_port() -> int:
    """A loopback port that nobody uses now, and that nobody else is given for long."""
    for port in itertools.islice(_PORTS, _OF_A_PROCESS):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")
