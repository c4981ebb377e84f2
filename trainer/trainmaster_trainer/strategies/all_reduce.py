"""AllReduce is synchronous data parallelism over workers, by one of four algorithms.

Native       NCCL between GPUs; shared memory where all ranks are on one host without GPUs, gloo where they are not
Ring         chunks go from neighbour to neighbour: 2S(N-1)/N bytes sent by every rank, whatever N is
Hierarchical inside each worker first, then between workers, then down
Driver       all send to rank 0, which adds up and sends back: 2(N-1)S bytes through its link

Goyal et al., "Accurate, large minibatch SGD" (2017), made it the usual way; Li et al., "PyTorch distributed" (VLDB
2020), overlaps it with the backward pass. What happens with the sums is in `data_parallel.py`, the algorithms are in
`collectives/` (the ring: Patarasuk and Yuan, 2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.data_parallel import DataParallel, compression_of
from trainmaster_trainer.strategies.strategy import check_options
from trainmaster_trainer.task import Task

ALGORITHMS = ("Native", "Ring", "Hierarchical", "Driver")


class AllReduce(DataParallel):
    """AllReduce keeps a replica of the model on every rank of every worker."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("AllReduce", options, {"algorithm": ALGORITHMS, "compression": ()})
        algorithm = options.get("algorithm", "Native")
        self.replicate(task, group, algorithm, compression_of(options, native=algorithm == "Native"))
