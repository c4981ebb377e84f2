"""Run Ray in the job's own replicas: its head beside the first worker, which drives; the others are its nodes.

RAY_ADDRESS is set, so that `ray.init()` in the script takes no arguments.
"""

from __future__ import annotations

import hashlib
import ipaddress
from typing import Tuple

from trainmaster_trainer.agent.companions import Companion
from trainmaster_trainer.agent.frameworks.position import Instructions, Position

HEAD = "Ray's head"
_TOKEN = "token"
# By the interpreter of the script. Processes that Ray starts make groups of their own, with torchrun's variables:
# ours would send them to a group that is not theirs.
_START = """
import os, sys
ours = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
for name in [*os.environ]:
    if name in ours or name.startswith(("LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_")):
        del os.environ[name]
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
"""
_OPTIONS = ("--block", "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0")
_NO_DASHBOARD = ("--include-dashboard=false",)


def instruct(position: Position) -> Instructions:
    """Return the head as a companion for the first worker, and a node in place of the command for the others."""
    first = position.first
    head = first.at.replace(first.address, _host(position, first.replica))
    # Paths of Ray's sockets may have 107 characters only, so the folder is not the attempt's.
    folder = f"/tmp/tm-ray-{hashlib.sha256(position.key.encode()).hexdigest()[:12]}"  # noqa: S108 Ray makes it for its user
    variables = {
        "RAY_ADDRESS": head,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": f"{position.folder}/{_TOKEN}",
    }
    files = {_TOKEN: position.key}
    if not position.leads:
        command = _start(position, f"--address={head}")
        return Instructions(variables, files=files, command=command, launches=True, awaits=HEAD, temporary=(folder,))
    start = _start(position, "--head", f"--port={first.port}", f"--temp-dir={folder}", *_NO_DASHBOARD)
    companions = (Companion(HEAD, start),)
    return Instructions(variables, files=files, companions=companions, launches=True, awaits=HEAD, temporary=(folder,))


def _start(position: Position, *options: str) -> Tuple[str, ...]:
    own = (f"--node-ip-address={_host(position, position.me.replica)}", f"--num-cpus={position.slots}")
    return (position.interpreter, "-c", _START, "start", *options, *own, *_OPTIONS)


def _host(position: Position, replica: int) -> str:
    """Return the address of a replica. On a laptop each has one of its own, as Ray takes 127.0.0.1 for a mistake."""
    address = ipaddress.ip_address(position.replicas[replica][0].address)
    return str(address + replica + 1 if address.is_loopback and address.version == 4 else address)  # noqa: PLR2004
