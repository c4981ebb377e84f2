"""Hierarchical adds up inside each replica, then between replicas, and hands the sum down.

It suits replicas with several ranks and fast links inside: only one rank of each, its leader, sends over the network.
With g ranks in each of m replicas, a leader sends (g-1)S inside and 2S(m-1)/m between, any other rank S; the same is
received. That is between Driver (one replica of N) and Ring (N replicas of one). Inside, the ranks use shared memory
where they can: a byte that one writes there and another reads counts as sent and received.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer, Traffic, size_of


class LeaderLink(Protocol):
    """LeaderLink is how the ranks of one replica reach their leader: a Driver or a Funnel."""

    traffic: Traffic

    def reduce(self, tensor: Tensor) -> None:
        """Add up the tensors of the ranks, on the leader only."""

    def broadcast(self, tensor: Tensor) -> None:
        """Copy the leader's tensor to all ranks."""


class Hierarchical(Reducer):
    """Hierarchical adds up in two levels. `inside` is None for a replica of one rank, `between` for all but leaders."""

    in_rank_order = False  # between the leaders it is a ring

    def __init__(self, inside: LeaderLink | None, between: Reducer | None) -> None:
        super().__init__()
        self._inside = inside
        self._between = between

    @override
    def sum(self, tensor: Tensor) -> None:
        if self._inside:
            self._inside.reduce(tensor)
        if self._between:
            self._between.sum(tensor)
        if self._inside:
            self._inside.broadcast(tensor)
        levels = [level.traffic for level in (self._inside, self._between) if level]
        self.traffic.sent = sum(traffic.sent for traffic in levels)
        self.traffic.received = sum(traffic.received for traffic in levels)
        self.traffic.reduced += size_of(tensor)
