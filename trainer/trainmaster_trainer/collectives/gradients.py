"""Exchange the gradients of DistributedDataParallel, by an algorithm and with a compression.

    compression   with               what does it                           remembered from step to step
    None          every algorithm    a Reducer in a thread, or DDP itself   nothing
    BF16          every algorithm    the same in bfloat16, or torch's hook  nothing
    INT8          Native             int8.py                                nothing
    PowerSGD      Native             torch's hook (Vogels et al., 2019)     errors, and the last two factors
    TopK          Native             top_k.py                               errors

What is remembered goes into checkpoints, under names with the rank in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainmaster_trainer.collectives.cast import Cast
from trainmaster_trainer.collectives.choose import choose_reducer, make_links
from trainmaster_trainer.collectives.hook import Communicator, average
from trainmaster_trainer.collectives.int8 import Int8
from trainmaster_trainer.collectives.native import Native
from trainmaster_trainer.collectives.reducer import Reducer, Traffic
from trainmaster_trainer.collectives.top_k import TopK
from trainmaster_trainer.group import Group

NONE = "None"
COMPRESSIONS = (NONE, "BF16", "INT8", "PowerSGD", "TopK")
POWER_SGD: dict[str, Any] = {
    "matrix_approximation_rank": 4,
    "start_powerSGD_iter": 10,  # the first steps are the most sensitive
    "orthogonalization_epsilon": 1e-8,  # a gradient of zeros has no direction
}


class Gradients:
    """Gradients is the exchange of one job. All ranks make it, before they make DistributedDataParallel."""

    traffic: Traffic | None = None  # of what counts its bytes

    def __init__(self, group: Group, algorithm: str, compression: str) -> None:
        self._group = group
        self._compression = compression if group.world_size > 1 else NONE
        self._communicator: Communicator | None = None
        self._top_k: TopK | None = None
        self._power: PowerSGDState | None = None
        reducer = choose_reducer(algorithm, group)
        # A sum of two has one order only.
        has_orders = self._group.world_size > 2 and not (reducer and reducer.in_rank_order)  # noqa: PLR2004
        self.place_matters = has_orders or self._compression not in (NONE, "BF16")
        _MAKERS[self._compression](self, reducer)

    def attach(self, replica: DistributedDataParallel) -> None:
        """Register the exchange with DistributedDataParallel."""
        if self._communicator:
            replica.register_comm_hook(self._communicator, average)
        elif self._power:
            replica.register_comm_hook(self._power, powerSGD_hook)
        elif self._compression == "BF16":
            replica.register_comm_hook(None, bf16_compress_hook)

    def stepped(self) -> None:
        """Note that a step is done: DDP's buckets will not change any more."""
        if self._top_k:
            self._top_k.starting = False

    @property
    def failure(self) -> Exception | None:
        """Return what went wrong in the thread; None where nothing did."""
        return self._communicator.failure if self._communicator else None

    def close(self) -> None:
        """End the thread."""
        if self._communicator:
            self._communicator.close()

    # --- what is remembered ---

    @property
    def remembers(self) -> bool:
        """Return whether there is something of this rank's own from step to step."""
        return bool(self._kept())

    @property
    def iteration(self) -> int:
        """Return the steps so far, which PowerSGD counts; 0 for all others."""
        return int(self._power.iter) if self._power else 0

    def memory(self) -> dict[str, Tensor]:
        """Return what this rank remembers, by name."""
        return {f"{kind}/{bucket}": tensor for kind, kept in self._kept().items() for bucket, tensor in kept.items()}

    def remember(self, memory: Mapping[str, Tensor], iteration: int) -> None:
        """Restore what `memory` and `iteration` gave."""
        for kind, kept in self._kept().items():
            kept.clear()
            found = {name: tensor for name, tensor in memory.items() if name.startswith(f"{kind}/")}
            kept.update({int(name.split("/")[1]): one.to(self._group.device, copy=True) for name, one in found.items()})
        if self._power:
            self._power.iter = iteration

    def _kept(self) -> dict[str, dict[int, Tensor]]:
        if self._top_k:
            return {"error": self._top_k.errors}
        if self._power:
            power = self._power
            return {"error": power.error_dict, "p": power.p_memory_dict, "q": power.q_memory_dict}
        return {}

    # --- one for each compression ---

    def _make_plain(self, reducer: Reducer | None) -> None:
        if reducer:
            self._use(reducer)

    def _make_bf16(self, reducer: Reducer | None) -> None:
        if reducer:
            self._use(Cast(reducer))

    def _make_int8(self, _: Reducer | None) -> None:
        self._use(Int8(make_links(self._group), range(self._group.world_size), self._group.rank))

    def _make_power_sgd(self, _: Reducer | None) -> None:
        own = dist.new_group(timeout=self._group.patience)
        power = self._power = PowerSGDState(process_group=own, **POWER_SGD)
        # One bucket after the other: the hook sums three times, the second and third time from a thread of gloo's as
        # soon as the sum before is there. Ranks that have several buckets under way at once, or DDP's own sum beside
        # them (of which parameters were used), begin those in different orders, and what does not belong together
        # meets, or waits for ever. NCCL begins all three where the hook is called.
        if self._group.device.type != "cuda":
            self._communicator = Communicator(lambda bucket: powerSGD_hook(power, bucket).wait(), self._group.device)

    def _make_top_k(self, reducer: Reducer | None) -> None:
        group = self._group
        self._top_k = TopK(make_links(group), range(group.world_size), group.rank, reducer or Native())
        self.traffic = self._top_k.traffic
        top_k = self._top_k
        self._communicator = Communicator(lambda bucket: top_k.mean(bucket.buffer(), bucket.index()), group.device)

    def _use(self, reducer: Reducer) -> None:
        def mean_of(bucket: GradBucket) -> None:
            reducer.mean(bucket.buffer(), self._group.world_size)

        self.traffic = reducer.traffic
        self._communicator = Communicator(mean_of, self._group.device)


_MAKERS = {
    NONE: Gradients._make_plain,  # noqa: SLF001 (its own)
    "BF16": Gradients._make_bf16,  # noqa: SLF001
    "INT8": Gradients._make_int8,  # noqa: SLF001
    "PowerSGD": Gradients._make_power_sgd,  # noqa: SLF001
    "TopK": Gradients._make_top_k,  # noqa: SLF001
}
