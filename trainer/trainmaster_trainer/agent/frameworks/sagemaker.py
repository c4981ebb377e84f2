"""Run a container that was made for SageMaker: its command finds the folders and files that SageMaker lays out.

The command runs below a program of ours (`agent/sagemaker_container.py`), which lays them out and judges the end.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from typing import Any, Dict

from trainmaster.wire import names

from trainmaster_trainer.agent import sagemaker_container
from trainmaster_trainer.agent.frameworks.position import Instructions, Position
from trainmaster_trainer.agent.main_module import BadConfigurationError

BASE = "SAGEMAKER_BASE_DIR"  # read by SageMaker's toolkit
_ITS_BASE = "/opt/ml"  # where all of its containers look, the toolkit or none
_CONTAINER = "container.json"
_GROUP = "workers"


def instruct(position: Position) -> Instructions:
    """Return the program that lays out the folders and runs the command, and what it has to write.

    In a pod the folders are where SageMaker has them. On a laptop that place is nobody's to fill, and of all replicas.

    Raises:
        BadConfigurationError: replicas of one machine would have their folders in one place.
    """
    base = position.environment.get(BASE)
    if base and len({peer.address for peer in position.peers}) < len(position.replicas):
        raise BadConfigurationError(f"workers.env: {BASE} is one folder for several workers of one machine: remove it")
    if not base:
        laptop = ipaddress.ip_address(position.me.address).is_loopback
        base = f"{position.folder}/ml" if laptop else _ITS_BASE
    first, *others = position.command
    program = position.interpreter if first.rpartition("/")[2].startswith("python") else first
    # SageMaker's hyperparameters are texts, which hold JSON unless they were texts before.
    hyperparameters = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in position.arguments.items()
    }
    told = {
        "base": base,
        "command": [program, *others],
        "replica": position.me.replica,
        "hyperparameters": hyperparameters,
        "resources": _resources(position),
    }
    return Instructions(
        variables={BASE: base},
        defaults={"TRAINING_JOB_NAME": position.environment.get(names.ENV_JOB, "").rpartition("/")[2]},
        files={_CONTAINER: json.dumps(told)},
        command=(sys.executable, "-m", sagemaker_container.__name__, f"{position.folder}/{_CONTAINER}"),
    )


def _resources(position: Position) -> Dict[str, Any]:
    hosts = sorted(_host(position, replica) for replica in position.replicas)  # as texts: so ranks are counted
    return {
        "current_host": _host(position, position.me.replica),
        "current_instance_type": "local",
        "current_group_name": _GROUP,
        "hosts": hosts,
        "instance_groups": [{"instance_group_name": _GROUP, "instance_type": "local", "hosts": hosts}],
        "network_interface_name": position.interface,
    }


def _host(position: Position, replica: int) -> str:
    """Return a name that resolves everywhere without DNS: the address, of which a laptop has more than one."""
    address = position.replicas[replica][0].address
    if address != "127.0.0.1" or len(position.replicas) == 1:
        return address
    return str(ipaddress.ip_address(address) + replica)
