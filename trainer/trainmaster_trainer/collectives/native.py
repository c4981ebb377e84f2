"""Native is torch's own all-reduce, NCCL between GPUs and gloo between CPUs. What it sends is not counted."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer, size_of


class Native(Reducer):
    """Native is the process group's all-reduce."""

    in_rank_order = False  # gloo's and NCCL's are rings or trees over chunks

    @override
    def sum(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor)
        self.traffic.reduced += size_of(tensor)
