"""Steps that all processes of a framework take together, each noted as `step time pid` in `FOLDER/rank-R.txt`.

Arguments: the framework, the folder. It goes on until it is ended. It is started by the framework's own launcher and by
ours, and is told nothing of either.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PAUSE_SECONDS = 0.02
framework, folder = sys.argv[1], Path(sys.argv[2])


def by_torch() -> tuple[int, Callable[[], object]]:
    """The rank, and a step."""
    torch, dist = import_module("torch"), import_module("torch.distributed")
    dist.init_process_group("gloo")
    return dist.get_rank(), lambda: dist.all_reduce(torch.ones(1))


def by_tensorflow() -> tuple[int, Callable[[], object]]:
    """The same, by MultiWorkerMirrored."""
    tf: Any = import_module("tensorflow")
    strategy: Any = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(())))

    return json.loads(os.environ["TF_CONFIG"])["task"]["index"], step


def by_horovod() -> tuple[int, Callable[[], object]]:
    """The same, over gloo."""
    torch, hvd = import_module("torch"), import_module("horovod.torch")
    hvd.init()
    return hvd.rank(), lambda: hvd.allreduce(torch.ones(1), name="one")


def by_mpi() -> tuple[int, Callable[[], object]]:
    """The same."""
    world = import_module("mpi4py.MPI").COMM_WORLD
    return world.rank, lambda: world.allreduce(1)


def by_ray() -> None:
    """An actor on each node takes the steps, and is made anew by Ray if its process dies."""
    ray, strategies = import_module("ray"), import_module("ray.util.scheduling_strategies")
    ray.init()
    group = ray.util.placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    places = [strategies.PlacementGroupSchedulingStrategy(group, number) for number in range(2)]
    made = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(Part)
    parts = [made.options(scheduling_strategy=place).remote(rank, folder) for rank, place in enumerate(places)]
    while True:
        ray.get([part.step.remote() for part in parts])
        time.sleep(PAUSE_SECONDS)


class Part:
    """What notes the steps of one rank."""

    def __init__(self, rank: int, folder: Path) -> None:
        self._notes = (folder / f"rank-{rank}.txt").open("a", buffering=1)
        self._step = 0

    def step(self) -> None:
        """Note that another one has ended."""
        self._step += 1
        self._notes.write(f"{self._step} {time.time()} {os.getpid()}\n")


def main() -> None:
    """Take steps for ever."""
    if framework == "Ray":
        return by_ray()
    begins = {"Torch": by_torch, "TensorFlow": by_tensorflow, "Horovod": by_horovod, "MPI": by_mpi}
    rank, step = begins[framework]()
    part = Part(rank, folder)
    while True:
        step()
        part.step()
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
