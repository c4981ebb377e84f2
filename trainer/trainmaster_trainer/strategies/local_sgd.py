"""LocalSGD: every rank trains alone for H steps (`every`), then all ranks meet.

At a meeting the ranks add up how far each has come from the last meeting point, by the size of its share, and an
outer optimizer takes a step with that mean as its gradient:

Average    SGD with rate 1: the new point is the mean of the models (Stich, "Local SGD converges fast and communicates
           little", ICLR 2019; McMahan et al., FedAvg, 2017)
Nesterov   SGD with rate 0.7 and Nesterov momentum 0.9 (Douillard et al., DiLoCo, 2023)

Running means and the like are averaged whatever the outer optimizer is: momentum could carry a variance below zero.

A meeting moves the bytes of one all-reduce of the model, so a step moves 1/H of AllReduce's. The numbers are not those
of OneDevice, except for H = 1 with plain SGD inside; of one rank with Average they are, to the last bit. The inner
optimizers' moments stay with their ranks.

BF16 and INT8 compress the ways; PowerSGD and TopK, which need many small steps to send what they left out, are refused.

A checkpoint holds, under the names of every strategy, the mean of the models and of the moments; beside that each
rank's own and the outer optimizer's (`local/<rank>/...`, `outer/...`), so that as many ranks go on as if nothing had
happened. Another strategy, or another number of ranks, goes on from the mean. Ranks wait for one another at meetings
only, so snapshots in memory are taken there.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from typing_extensions import override

from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.checkpoint.state import MODEL, OPTIMIZER, State, dtype_name
from trainmaster_trainer.collectives.choose import choose_counted
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.flat_buffers import as_real
from trainmaster_trainer.group import Group
from trainmaster_trainer.strategies.strategy import WholeModel, check_options
from trainmaster_trainer.task import Task
from trainmaster_trainer.validation import Evaluator

log = logging.getLogger(__name__)
COMPRESSIONS = ("None", "BF16", "INT8")
OUTER: dict[str, dict[str, Any]] = {
    "Average": {"lr": 1.0},
    "Nesterov": {"lr": 0.7, "momentum": 0.9, "nesterov": True},
}
MOMENTUM = "momentum_buffer"


class LocalSGD(WholeModel):
    """LocalSGD keeps replicas of the model that meet every few steps."""

    snapshots = Snapshots.PER_RANK
    averages = False

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        check_options("LocalSGD", options, {"every": (), "outer": tuple(OUTER), "compression": COMPRESSIONS})
        self.share = Share(group.rank, group.world_size)
        self.build(task, group)
        self._every = int(options.get("every", 8))
        self._reducer = choose_counted(group, options.get("compression", "None"))
        here = self._here()
        # Where the ranks last met, and the optimizer that moves this point.
        self._point = {name: nn.Parameter(tensor.detach().clone()) for name, tensor in here.items()}
        learned = [point for name, point in self._point.items() if isinstance(here[name], nn.Parameter)]
        others = [point for name, point in self._point.items() if not isinstance(here[name], nn.Parameter)]
        outer = options.get("outer", "Average")
        self._is_alone = group.world_size == 1 and outer == "Average"
        self._outer = torch.optim.SGD([{"params": learned, **OUTER[outer]}, {"params": others, **OUTER["Average"]}])
        self.sync_every = self._every if group.world_size > 1 else 1
        self._apart = False  # have steps been taken since the last meeting?
        self._samples = 0  # of the last global batch
        self._weight = 1 / group.world_size

    @override
    def step(self, batch: Batch) -> Tensor | None:
        loss = self.update(batch)
        self._apart = True
        self._weigh(batch.global_size)
        if batch.step % self._every == 0:
            begin = time.monotonic()
            self._meet()
            self.waited = time.monotonic() - begin
        return loss

    def _weigh(self, samples: int) -> None:
        """Weight this rank by its share of a global batch of so many samples."""
        first, end = Share(self.group.rank, self.group.world_size).bounds(samples)
        self._samples, self._weight = samples, (end - first) / samples

    @torch.no_grad()
    def _meet(self) -> None:
        """Take an outer step whose gradient is the mean way that all ranks have come."""
        here = self._here()
        self._apart = False
        if self._is_alone:  # the mean of one model is that model; there and back, its last bits would be rounded
            _put(here, dict(self._point))
            return
        ways = [_way(point, here[name]) * self._weight for name, point in self._point.items()]
        for way, point in zip(self._sum(ways), self._point.values(), strict=True):
            point.grad = way
        self._outer.step()
        for name, point in self._point.items():
            here[name].copy_(point)

    def _here(self) -> dict[str, Tensor]:
        """Return what is averaged, as it is now: parameters and running means, which a forward pass may replace."""
        here = self.model.state_dict(keep_vars=True)
        return {name: tensor for name, tensor in here.items() if _has_a_mean(tensor)}

    def _sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sum each tensor over all ranks, in place, with one message per dtype. Return the tensors."""
        if not self._reducer:
            return tensors
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in alike])
            self._reducer.sum(as_real(flat))
            for tensor, total in zip(alike, torch.split(flat, [one.numel() for one in alike]), strict=True):
                tensor.copy_(total.view_as(tensor))
        return tensors

    # --- what outlives the process ---

    @override
    def state(self) -> State:
        here = self.local_state()
        if self.group.world_size == 1:
            return here
        own = {name: one for name, one in here.tensors.items() if name.startswith((MODEL, OPTIMIZER))}
        local = {f"local/{self.group.rank}/{name}": tensor for name, tensor in own.items()}
        common = {name: self._mean(name, tensor) for name, tensor in self._of_all(own).items()}
        allowed = {f"local/{self.group.rank}/{name}": worst for name, worst in here.allowed.items()}
        tensors = {**here.tensors, **common, **local}
        return dataclasses.replace(here, tensors=tensors, own=frozenset(local), allowed={**here.allowed, **allowed})

    def _of_all(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of the mean, in the same order on all ranks, whichever rank has a part of them.

        A rank has no moments of parameters that have not had a gradient here; in the mean they count as zeros.
        """
        means = {name: tensor for name, tensor in own.items() if _has_a_mean(tensor)}
        forms = {name: [dtype_name(one.dtype), list(one.shape), one.device.type] for name, one in means.items()}
        union = {name: form for rank in self.group.gather(forms) for name, form in rank.items()}
        return {name: means[name] if name in means else self._zeros(*form) for name, form in sorted(union.items())}

    def _zeros(self, dtype: str, shape: list[int], kind: str) -> Tensor:
        device = self.group.device if kind == self.group.device.type else torch.device(kind)
        return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)

    @override
    def local_state(self) -> State:
        own = super().state()
        known = {"ranks": self.group.world_size, "apart": self._apart, "samples": self._samples}
        scalars = {**own.scalars, "local_sgd": known}
        points = {f"outer/point/{name.removeprefix(MODEL)}": worst for name, worst in own.allowed.items()}
        tensors = {**own.tensors, **self._outer_state()}
        return dataclasses.replace(own, tensors=tensors, scalars=scalars, allowed={**own.allowed, **points})

    def _mean(self, name: str, tensor: Tensor) -> Tensor:
        """Return the mean over all ranks, or the tensor itself where all ranks have the same."""
        if name.startswith(MODEL) and not self._apart:
            return tensor
        total = tensor * self._weight
        dist.all_reduce(total)
        return total

    def _outer_state(self) -> dict[str, Tensor]:
        points = {f"outer/point/{name}": point.detach() for name, point in self._point.items()}
        momenta = {
            f"outer/momentum/{name}": self._outer.state[point][MOMENTUM]
            for name, point in self._point.items()
            if self._outer.state.get(point, {}).get(MOMENTUM) is not None
        }
        return {**points, **momenta}

    @override
    def restore(self, state: State) -> None:
        common = {name: tensor for name, tensor in state.tensors.items() if name.startswith((MODEL, OPTIMIZER))}
        known = state.scalars.get("local_sgd", {})
        prefix = f"local/{self.group.rank}/"
        own = {name.removeprefix(prefix): one for name, one in state.tensors.items() if name.startswith(prefix)}
        ranks = {name.split("/")[1] for name in state.tensors if name.startswith("local/")}
        # Of all ranks of the same number, or of none: one's own beside the mean of all would count twice.
        mine = own if known.get("ranks") == self.group.world_size == len(ranks) else common
        super().restore(State(mine, state.scalars))
        self._apart = bool(known.get("apart"))
        if samples := int(known.get("samples", 0)):
            self._weigh(samples)  # the mean may be asked for before the next step
        self._restore_outer(state.tensors, common)

    @torch.no_grad()
    def _restore_outer(self, tensors: Mapping[str, Tensor], common: Mapping[str, Tensor]) -> None:
        """Restore the points and momenta of the outer optimizer; without a stored point, the model is the point."""
        for name, point in self._point.items():
            point.copy_(tensors.get(f"outer/point/{name}", common[MODEL + name]))
            momentum = tensors.get(f"outer/momentum/{name}")
            if momentum is not None:
                self._outer.state[point][MOMENTUM] = momentum.to(point.device, copy=True)

    @override
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        if not self._apart or self.group.world_size == 1:
            return super().evaluate(trial)
        here = self._here()  # the last steps were no whole round: the mean of the models is tried
        means = {name: self._mean(MODEL + name, tensor.detach()) for name, tensor in here.items()}
        own = {name: tensor.detach().clone() for name, tensor in here.items()}
        _put(means, here)
        try:
            return super().evaluate(trial)
        finally:
            _put(own, here)

    @override
    def close(self) -> None:
        if self._reducer:
            traffic = self._reducer.traffic
            log.debug("Exchanged models: %d bytes sent, %d bytes received.", traffic.sent, traffic.received)


def _way(point: Tensor, here: Tensor) -> Tensor:
    """Return how far a rank has come since the last meeting: zero in a mask, whose numbers may be infinite."""
    return point - here if isinstance(here, nn.Parameter) else (point - here).masked_fill_(point == here, 0)


@torch.no_grad()
def _put(values: Mapping[str, Tensor], here: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        here[name].copy_(value)


def _has_a_mean(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
