"""Mirrored is synchronous data parallelism over the devices of one worker.

The variables are mirrored: every device has them all, and after every step they are equal on all devices, buffers
such as running means included. TensorFlow calls this MirroredStrategy (Abadi et al., OSDI 2016), with its three ways
to add up gradients; on a machine without GPUs, a device is a process.

Native            NCCL between GPUs, shared memory between processes
HierarchicalCopy  pairs, then pairs of pairs, and the sum is copied back the same way
OneDevice         the first device adds up and hands out the sum

What happens with them is in `data_parallel.py`, the algorithms themselves are in `collectives/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.data_parallel import DataParallel, compression_of
from trainmaster_trainer.strategies.strategy import check_one_machine, check_options
from trainmaster_trainer.task import Task

REDUCTIONS = ("Native", "HierarchicalCopy", "OneDevice")


class Mirrored(DataParallel):
    """Mirrored keeps a replica of the model on every device of one worker."""

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("Mirrored", options, {"reduction": REDUCTIONS, "compression": ()})
        check_one_machine("Mirrored", group)
        reduction = options.get("reduction", "Native")
        self.replicate(task, group, reduction, compression_of(options, native=reduction == "Native"))
