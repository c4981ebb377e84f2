"""Add up over an actor on each node of Ray; in an attempt the second node is killed. `ray.init()` is told nothing."""

import os
import signal
from pathlib import Path

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


def start_of_node(pid):
    """The process that has started this node, above this one."""
    while True:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"--address=" in words and b"raylet/raylet" not in words:
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@ray.remote(num_cpus=1)
class Part:
    """Part has the rows of its node."""

    def total(self, dies):
        """Return the place of its replica in the job, and the sum of its rows."""
        index = int(os.environ["TRAINMASTER_INDEX"])
        if dies and index == 1:
            os.kill(start_of_node(os.getpid()), signal.SIGKILL)
            signal.pause()  # until Ray's node, which outlives that process by a moment, has ended
        return index, sum(range(index, 100, 2)), "RANK" in os.environ


if os.environ.get("WRONG"):
    raise ValueError("bad learning rate")
ray.init()
group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
ray.get(group.ready())
parts = [Part.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, n)).remote() for n in range(2)]
dies = os.environ["TRAINMASTER_ATTEMPT"] == os.environ.get("DIE_IN_ATTEMPT")
print("RIGHT", sorted(ray.get([part.total.remote(dies) for part in parts])), flush=True)
