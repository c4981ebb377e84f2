"""VirtualRanks makes data parallelism end in the same bits at any number of ranks, for `spec.reproducible: true`.

A sum of floats depends on its order, and a share's gradient on its size. So the batch is always cut into the same 8
virtual ranks, whatever the number of real ones, each computed by itself with random numbers of its own (seeded from
seed, step and virtual rank; so are its samples, and the optimizer's step), and their gradients are added up along one
fixed binary tree (as in EasyScale, Li et al., SC 2023, which fixes the order by logical workers). A real rank adds up
the whole subtrees that it has; what travels are at most two of them per level and rank. Any world size from 1 to 8, and
any change of it on the way, ends in the same SHA-256, as long as the machines compute alike (same kernels: the same
kind of processor, one thread per rank).

Its price: 8 small forward and backward passes instead of one big one, and an all-gather instead of an all-reduce
(`make bench NAME=reproducible`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.model_guard import ForwardState, with_extra_state
from trainmaster_trainer.strategies.outside_changes import OutsideChanges, check_same_trained, trained
from trainmaster_trainer.strategies.sharing import share, share_extra_state
from trainmaster_trainer.strategies.strategy import WholeModel
from trainmaster_trainer.strategies.used_parameters import check_dense
from trainmaster_trainer.task import Task

VIRTUAL_RANKS = 8  # a power of two, so that the tree is complete


class Subtree(NamedTuple):
    """Hold the sum of the virtual ranks `first` to `first + width - 1`."""

    first: int
    width: int
    sum: Tensor


class VirtualRanks(WholeModel):
    """VirtualRanks keeps whole models on all ranks, equal to the last bit at any world size."""

    snapshots = Snapshots.REPLICATED
    settles = True

    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        if group.world_size > VIRTUAL_RANKS:
            raise ConfigurationError(
                f"spec.reproducible: it trains with {VIRTUAL_RANKS} ranks at most, here are {group.world_size}. "
                "Lower spec.workers.replicas (or gpus), or set it to false."
            )
        torch.use_deterministic_algorithms(mode=True)
        self._seed = int(options["seed"])
        self._mine = Share(group.rank, group.world_size).bounds(VIRTUAL_RANKS)
        first, end = self._mine
        self.share = Share(first, VIRTUAL_RANKS, parts=end - first)
        self.build(task, group)
        check_dense("a reproducible sum", self.model)
        OutsideChanges("reproducible: true", self.model, lambda: dict(self.model.named_parameters()))
        self._trained = trained(self.model)

    @override
    def step(self, batch: Batch) -> Tensor | None:
        self.set_learning_rate(batch.fraction_done)
        if len(range(*self._mine)) > 1:
            batch.check_can_be_cut()
        leaves, losses = self._compute_all(batch)
        self._put_gradients(self._sum_of_all(fold(leaves)))
        randomness.seed_rank(self._seed, VIRTUAL_RANKS, batch.step)  # an optimizer may draw, too: alike on all ranks
        self.numerics.take_step(self.optimizer)
        return torch.stack(losses).sum()

    def _compute_all(self, batch: Batch) -> tuple[list[Subtree], list[Tensor]]:
        """Return each virtual rank's gradient, and its part of this rank's loss.

        Buffers and extra state end as the first of all virtual ranks leaves them.
        """
        before = after = ForwardState(self.model)
        leaves: list[Subtree] = []
        losses: list[Tensor] = []
        for virtual in range(*self._mine):
            before.put_back()
            randomness.seed_rank(self._seed, virtual, batch.step)
            leaf, loss = self._compute(batch, virtual)
            leaves.append(leaf)
            losses.append(loss)
            if virtual == self._mine[0]:
                after = ForwardState(self.model)
        after.put_back()
        self._take_over_from_first()
        return leaves, losses

    def _take_over_from_first(self) -> None:
        """Take over the first rank's buffers and extra state, which are the first virtual rank's."""
        if self.group.world_size == 1:
            return
        share(self.model.buffers())
        share_extra_state(with_extra_state(self.model).values())

    @override
    def carried(self, loss: Loss) -> Loss:
        return loss.as_mean_for("reproducible: true", instead="remove spec.reproducible")

    def _compute(self, batch: Batch, virtual: int) -> tuple[Subtree, Tensor]:
        first, end = Share(virtual, VIRTUAL_RANKS).bounds(batch.global_size)
        offset, _ = Share(self._mine[0], VIRTUAL_RANKS).bounds(batch.global_size)
        own = batch.part(first - offset, end - offset)
        self.optimizer.zero_grad()
        loss = self.numerics.backward(own, self.loss, own.size / batch.global_size)
        # All gradients are in one vector, zeros for a missing one; then for each parameter 1, or 0 if it is missing.
        check_same_trained("reproducible: true", self._trained, self.model, may_rest=True)
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._trained]
        have = torch.tensor([one.grad is not None for one in self._trained], device=self.group.device)
        gradients = torch.cat([*(gradient.flatten() for gradient in found), have.to(found[0].dtype)])
        return Subtree(virtual, 1, gradients), loss * (own.size / batch.size)

    def _put_gradients(self, total: Tensor) -> None:
        """Put the whole batch's gradients into the parameters; None where no share's loss depends on a parameter."""
        sizes = [parameter.numel() for parameter in self._trained]
        *gradients, had = torch.split(total, [*sizes, len(sizes)])
        for parameter, gradient, any_had in zip(self._trained, gradients, had.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype, copy=True) if any_had else None

    def _sum_of_all(self, mine: list[Subtree]) -> Tensor:
        """Return the root of the tree: every rank gets all ranks' subtrees and adds them up in the same order."""
        if self.group.world_size == 1:
            return mine[0].sum
        spans = [Share(rank, self.group.world_size).bounds(VIRTUAL_RANKS) for rank in range(self.group.world_size)]
        shapes = [subtrees_of(*span) for span in spans]
        most = max(len(shape) for shape in shapes)
        # Ranks have different numbers of subtrees only where the world is no power of two: those send some zeros.
        sent = torch.zeros(most, mine[0].sum.numel(), dtype=mine[0].sum.dtype, device=self.group.device)
        for row, subtree in zip(sent, mine, strict=False):
            row.copy_(subtree.sum)
        received = [torch.empty_like(sent) for _ in spans]
        dist.all_gather(received, sent)
        told = [
            Subtree(first, width, row)
            for shape, rows in zip(shapes, received, strict=True)
            for (first, width), row in zip(shape, rows, strict=False)
        ]
        (root,) = fold(told)
        return root.sum


def fold(subtrees: Sequence[Subtree]) -> list[Subtree]:
    """Add up neighbours that are the two halves of one larger subtree, until there are none."""
    done: list[Subtree] = []
    for subtree in subtrees:
        top = subtree
        while done and done[-1].width == top.width and done[-1].first % (2 * top.width) == 0:
            left = done.pop()
            top = Subtree(left.first, 2 * left.width, left.sum + top.sum)
        done.append(top)
    return done


def subtrees_of(first: int, end: int) -> list[tuple[int, int]]:
    """Return (first, width) of the whole subtrees that the virtual ranks `first` to `end - 1` make up."""
    nothing = torch.zeros(0)
    return [(subtree.first, subtree.width) for subtree in fold([Subtree(one, 1, nothing) for one in range(first, end)])]
