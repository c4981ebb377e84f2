"""Axes lays out the ranks of a job that split a model, its samples, or both.

    pipeline x data x sharded x tensor        ranks count fastest along the last one

Ranks that differ in `tensor` only are neighbours, because they exchange activations inside every layer; stages are far
apart, because they exchange least: with one pipeline stage per worker, each stage has a worker's devices to itself.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainmaster_trainer.collectives import host_group, stage_group
from trainmaster_trainer.data import Share
from trainmaster_trainer.group import Group, set_timeout


@dataclasses.dataclass(frozen=True)
class Axes:
    """Hold the number of ranks along each axis."""

    pipeline: int = 1
    data: int = 1
    sharded: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        """Return the number of all ranks."""
        return math.prod(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of ranks along each axis, in the order of the mesh."""
        return dataclasses.astuple(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the axes, in the order of the mesh."""
        return tuple(field.name for field in dataclasses.fields(self))

    def mesh(self, group: Group) -> DeviceMesh:
        """Make a process group for every row along every axis. All ranks call this together."""
        # Ranks that share samples exchange seldom, and those that share layers in their own way (`shards.py`).
        offers = {"pipeline": stage_group.offer, "tensor": host_group.offer}
        override: Any = {
            name: backend
            for name, offer in offers.items()
            if getattr(self, name) > 1 and (backend := offer(group)) is not None
        }
        mesh = init_device_mesh(group.device.type, self.lengths, mesh_dim_names=self.names, backend_override=override)
        for name in self.names:
            set_timeout(group.patience, mesh[name].get_group())
        # A rank that finds a mistake next, and leaves with the store, must not disturb one that is still on its way.
        group.sum(torch.zeros(1))
        return mesh

    def place(self, rank: int) -> Axes:
        """Return the position of a rank along each axis, counted from 0."""
        places = []
        for length in reversed(self.lengths):
            rank, place = divmod(rank, length)
            places.append(place)
        return Axes(*reversed(places))

    def share(self, rank: int) -> Share:
        """Return the share of samples of a rank: stages and tensor ranks work on the same samples."""
        place = self.place(rank)
        return Share(place.data * self.sharded + place.sharded, self.data * self.sharded)

    def first_of_tensor(self, rank: int) -> int:
        """Return the first of the ranks that compute the same layers on the same samples as this `rank`."""
        return rank - self.place(rank).tensor
