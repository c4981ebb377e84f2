"""Divide a snapshot of a state that every rank has among the ranks of one replica: together they keep one.

Each keeps its part of every large tensor, so a snapshot takes 1/N of the time and, with its twin, 1/N of the memory
that it would take if each kept all. Nothing is lost by it: what kills a rank leaves its part, and what kills them all
takes the whole folder, but not those of other replicas. (As the shards of Gemini, Wang et al., SOSP 2023.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

SMALL = 1024  # elements: below, all ranks keep the whole tensor, for cutting it costs more


class Cut(NamedTuple):
    """Cut says which part of a tensor this is: from `begin` on along a dimension, where the whole has this length."""

    dimension: int
    begin: int
    length: int

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the whole, from that of a part."""
        return (*shape[: self.dimension], self.length, *shape[self.dimension + 1 :])


def cut(tensors: Mapping[str, Tensor], part: int, parts: int) -> tuple[dict[str, Tensor], dict[str, Cut]]:
    """Return views of one part of each tensor, and the cut of each; a tensor that is not cut has no cut."""
    views, cuts = dict(tensors), {}
    for name, tensor in tensors.items() if parts > 1 else ():
        if tensor.numel() >= SMALL and (length := max(tensor.shape)) >= parts:
            dimension = tensor.shape.index(length)
            begin, end = part * length // parts, (part + 1) * length // parts
            views[name] = tensor.narrow(dimension, begin, end - begin)
            cuts[name] = Cut(dimension, begin, length)
    return views, cuts
