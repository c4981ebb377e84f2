"""Give a script of Horovod its slot, and run Horovod's rendezvous beside the first rank: no launcher, no ssh.

This is what Horovod's own launcher does for a group that stays as it is, over gloo.
"""

from __future__ import annotations

from trainmaster_trainer.agent.companions import Companion
from trainmaster_trainer.agent.frameworks.position import Instructions, Position

RENDEZVOUS = "Horovod's rendezvous"
# Its server takes a free port; it is to take the one that all ranks were told.
_SERVE = """
import signal, sys
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http import http_server
address, port, slots = sys.argv[1], int(sys.argv[2]), sys.argv[3]
http_server.find_port = lambda make: (make((address, port)), port)
total = sum(int(slot.rpartition(":")[2]) for slot in slots.split(","))
server = http_server.RendezvousServer()
server.start()
server.init(get_host_assignments(parse_hosts(slots), total, total))
signal.pause()
"""


def instruct(position: Position) -> Instructions:
    """Return the variables of this rank's slot, and the rendezvous as a companion that comes first."""
    me, first, replicas = position.me, position.first, position.replicas
    across = [replica for replica, peers in replicas.items() if len(peers) > me.local]
    values = {
        "HOSTNAME": _host(me.replica),
        "RANK": position.rank,
        "SIZE": len(position.peers),
        "LOCAL_RANK": me.local,
        "LOCAL_SIZE": len(replicas[me.replica]),
        "CROSS_RANK": across.index(me.replica),
        "CROSS_SIZE": len(across),
        "GLOO_RENDEZVOUS_ADDR": first.address,
        "GLOO_RENDEZVOUS_PORT": first.port,
        "GLOO_IFACE": position.interface,
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
    }
    slots = ",".join(f"{_host(replica)}:{len(peers)}" for replica, peers in replicas.items())
    serve = (position.interpreter, "-c", _SERVE, first.address, str(first.port), slots)
    return Instructions(
        variables={f"HOROVOD_{name}": str(value) for name, value in values.items()},
        companions=(Companion(RENDEZVOUS, serve),) if position.leads else (),
        awaits=RENDEZVOUS,
    )


def _host(replica: int) -> str:
    return f"worker-{replica}"  # a name in Horovod's own book-keeping, which nobody resolves
