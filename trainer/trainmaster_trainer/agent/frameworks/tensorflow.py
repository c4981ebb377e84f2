"""Tell a script of TensorFlow who it is by TF_CONFIG. Under ParameterServer the first worker is the chief."""

from __future__ import annotations

import json
from typing import Dict, List

from trainmaster.wire import names

from trainmaster_trainer.agent.frameworks.position import Instructions, PeerPosition, Position
from trainmaster_trainer.agent.main_module import BadConfigurationError

_SERVERS = "ParameterServer"
_ALONE = ("OneDevice", "Mirrored", "CentralStorage")  # one process with all devices, which nobody has to find
_INTER_OP = "TF_NUM_INTEROP_THREADS"


def instruct(position: Position) -> Instructions:
    """Return TF_CONFIG with all processes, and this one's task.

    Raises:
        BadConfigurationError: a variable is set that stops TensorFlow's servers for ever.
    """
    if position.strategy == _SERVERS and position.environment.get(_INTER_OP) == "1":
        raise BadConfigurationError(f"workers.env: {_INTER_OP}=1 stops TensorFlow's servers for ever: remove it")
    defaults = {"TF_NUM_INTRAOP_THREADS": str(position.threads)}
    if position.strategy in _ALONE:
        return Instructions(defaults=defaults)
    cluster: Dict[str, List[str]] = {}
    task: Dict[str, object] = {}
    for peer in position.peers:
        members = cluster.setdefault(_job(position, peer), [])
        if peer == position.me:
            task = {"type": _job(position, peer), "index": len(members)}
        members.append(peer.at)
    return Instructions(
        variables={"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})},
        # Else a process that is up first gives up on those that are not.
        defaults={**defaults, "GRPC_FAIL_FAST": "use_caller"},
    )


def _job(position: Position, peer: PeerPosition) -> str:
    if peer.role == names.PARAMETER_SERVER:
        return "ps"
    return "chief" if position.strategy == _SERVERS and peer == position.first else "worker"
