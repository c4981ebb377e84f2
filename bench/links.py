"""Hosts behind links of a given speed, on this machine: network namespaces around a bridge, shaped by tc. Needs root.

Everything is in namespaces of our own, whose end is the end of all that is in them. `switched` cleans up whatever
happens, also after an exception or a SIGTERM (`__main__` makes an exception of it).
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

DEVICE = "link"
_SHAPE = ("burst", "64kb", "latency", "800ms")  # a queue that is long enough not to lose packets of many senders


class Host(NamedTuple):
    """A namespace with one link."""

    namespace: str
    address: str


@contextmanager
def switched(count: int, megabits: int) -> Iterator[list[Host]]:
    """`count` hosts at a switch; each link carries `megabits` per second in each direction."""
    name = f"tm-bench-{os.getpid()}"
    switch = f"{name}-switch"
    hosts = [Host(f"{name}-{number}", f"10.99.0.{number + 1}") for number in range(count)]
    try:
        _make(switch)
        _ip("-n", switch, "link", "add", "bridge", "up", "type", "bridge")
        for number, host in enumerate(hosts):
            _make(host.namespace)
            _connect(host, switch, f"port{number}", megabits)
        yield hosts
    finally:
        for namespace in (switch, *(host.namespace for host in hosts)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)


def _make(namespace: str) -> None:
    _ip("netns", "add", namespace)
    _ip("-n", namespace, "link", "set", "lo", "up")


def _connect(host: Host, switch: str, port: str, megabits: int) -> None:
    far = ("peer", "name", port, "netns", switch)
    _ip("-n", host.namespace, "link", "add", "name", DEVICE, "type", "veth", *far)
    _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", DEVICE)
    _ip("-n", switch, "link", "set", "dev", port, "master", "bridge")
    for namespace, device in ((host.namespace, DEVICE), (switch, port)):
        _ip("-n", namespace, "link", "set", "dev", device, "up")
        rate = ("root", "tbf", "rate", f"{megabits}mbit", *_SHAPE)
        _run("tc", "-n", namespace, "qdisc", "add", "dev", device, *rate)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
