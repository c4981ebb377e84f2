"""Lay out named tensors one after the other in one buffer per dtype.

What travels is then a few big pieces instead of many small ones, and both sides know every tensor's place from names,
dtypes and shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Shape = tuple[torch.dtype, tuple[int, ...]]


class FlatLayout:
    """FlatLayout says where each tensor lies: in the order of names, each dtype in a buffer of its own."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.dtypes = sorted({dtype for dtype, _ in shapes.values()}, key=str)
        self._places: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        sizes = [0] * len(self.dtypes)
        for name in sorted(shapes):
            dtype, shape = shapes[name]
            index = self.dtypes.index(dtype)
            self._places[name] = (index, sizes[index], shape)
            sizes[index] += math.prod(shape)
        self.sizes = sizes

    @classmethod
    def for_tensors(cls, tensors: Mapping[str, Tensor]) -> FlatLayout:
        """Return the layout of these tensors."""
        return cls({name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()})

    def empty(self, device: torch.device | None = None) -> list[Tensor]:
        """Return fresh buffers, zeroed."""
        return [
            torch.zeros(size, dtype=dtype, device=device) for size, dtype in zip(self.sizes, self.dtypes, strict=True)
        ]

    def views(self, buffers: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the tensors by name, as views of the buffers."""
        return {
            name: buffers[index][first : first + math.prod(shape)].view(shape)
            for name, (index, first, shape) in self._places.items()
        }

    def pack(self, tensors: Mapping[str, Tensor], device: torch.device | None = None) -> list[Tensor]:
        """Return fresh buffers with the content of these tensors."""
        buffers = self.empty(device)
        for name, view in self.views(buffers).items():
            view.copy_(tensors[name])
        return buffers


def adopt(parameters: Mapping[str, Tensor], layout: FlatLayout, device: torch.device | None = None) -> list[Tensor]:
    """Move parameters into buffers: from then on, writing the buffers changes the parameters."""
    buffers = layout.pack({name: parameter.detach() for name, parameter in parameters.items()}, device)
    for name, view in layout.views(buffers).items():
        parameters[name].data = view
    return buffers


def as_real(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor as a flat view of its real numbers, to read and write: a complex one is two."""
    return torch.view_as_real(tensor).view(-1) if tensor.is_complex() else tensor.view(-1)
