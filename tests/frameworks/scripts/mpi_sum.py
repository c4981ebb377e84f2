"""Add up over all processes of MPI; the first one kills itself in an attempt, or waits for a file."""

import os
import signal
from pathlib import Path

from mpi4py import MPI

group = MPI.COMM_WORLD
if group.rank == 1 and os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT"):
    os.kill(os.getpid(), signal.SIGKILL)
total = group.allreduce(group.rank + 1)
replicas = group.gather(os.environ["TRAINMASTER_INDEX"])
if group.rank == 0:
    print(f"RIGHT processes={group.size} total={total} replicas={','.join(sorted(replicas))}", flush=True)
    while os.environ.get("GATE") and not Path(os.environ["GATE"]).exists():
        pass
group.barrier()
