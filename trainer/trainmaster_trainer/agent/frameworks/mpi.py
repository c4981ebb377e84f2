"""Have mpirun, which runs on the first worker, reach the others through a remote shell of ours in place of ssh.

Each other worker serves that shell (`agent/remote_shell.py`) in place of the user's command. Open MPI 4 and 5 call the
same parameters by different names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Dict

from trainmaster_trainer.agent import remote_shell
from trainmaster_trainer.agent.frameworks.position import Instructions, Position

KEY, HOSTS, HOSTFILE = "key", "hosts.json", "hostfile"
_OURS = str(Path(remote_shell.__file__).resolve())


def instruct(position: Position) -> Instructions:
    """Return hostfile and remote shell for the first worker, and the server of that shell for the others."""
    me, folder = position.me, position.folder
    if not position.leads:
        command = (sys.executable, _OURS, "serve", me.address, str(me.port), f"{folder}/{KEY}")
        return Instructions(_sessions(folder), files={KEY: position.key}, command=command, launches=True)
    hosts = {f"worker-{peer.replica}": (peer.address, peer.port) for peer in position.peers}
    files = {
        KEY: position.key,
        HOSTS: json.dumps(hosts),
        HOSTFILE: "".join(f"{host} slots={position.slots}\n" for host in hosts),
    }
    # Two daemons on one machine: their processes have the same names in /dev/shm, and take one another for neighbours.
    together = len({address for address, _ in hosts.values()}) < len(hosts)
    defaults = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_coll": "^han"} if together else {}
    return Instructions(variables=_parameters(folder), defaults=defaults, files=files, launches=True)


def _parameters(folder: str) -> Dict[str, str]:
    hostfile = f"{folder}/{HOSTFILE}"
    # A command line and no script, as the folder may be mounted without the right to execute.
    shell = f"{sys.executable} -I {_OURS} call {folder}/{HOSTS} {folder}/{KEY}"
    four = {
        "orte_default_hostfile": hostfile,
        "plm_rsh_agent": shell,
        "plm_rsh_no_tree_spawn": "1",
        "orte_keep_fqdn_hostnames": "1",
    }
    five = {
        "prte_default_hostfile": hostfile,
        "plm_ssh_agent": shell,
        "plm_ssh_no_tree_spawn": "1",
        "prte_keep_fqdn_hostnames": "1",
    }
    allowed = {f"{prefix}_ALLOW_RUN_AS_ROOT{word}": "1" for prefix in ("OMPI", "PRTE") for word in ("", "_CONFIRM")}
    return {
        **{f"OMPI_MCA_{name}": value for name, value in four.items()},
        **{f"PRTE_MCA_{name}": value for name, value in five.items()},
        **allowed,
        **_sessions(folder),
    }


def _sessions(folder: str) -> Dict[str, str]:
    """Return where Open MPI keeps files. Daemons and processes that are killed leave theirs to the attempt's end."""
    return {"OMPI_MCA_orte_tmpdir_base": folder, "PRTE_MCA_prte_tmpdir_base": folder, "PMIX_SERVER_TMPDIR": folder}
