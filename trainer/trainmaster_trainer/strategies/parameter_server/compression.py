"""Compress what workers push: BF16 to half, INT8 to a quarter, TopK to a fiftieth of float32's bytes.

What a worker leaves out it keeps, and adds to its next gradient (error feedback: Seide et al., "1-bit stochastic
gradient descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019). A worker that dies
takes what it kept along. The servers add up full gradients, and pass them on to their copies in full. A complex number
is packed as two real ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.flat_buffers import FlatLayout, as_real

GROUP = 1024  # values that share a scale (INT8)
TOP_K = 0.01
_LEVELS = 127


def pack_bf16(gradient: Tensor) -> list[Tensor]:
    """Return the gradient in half the bytes."""
    return [gradient.bfloat16()]


def unpack_bf16(packed: Sequence[Tensor], size: int) -> Tensor:  # noqa: ARG001 (all have the same)
    """Undo `pack_bf16`."""
    return packed[0].float()


def pack_int8(gradient: Tensor) -> list[Tensor]:
    """Return whole numbers from -127 to 127, and a scale for each group."""
    groups = functional.pad(gradient, (0, -gradient.numel() % GROUP)).view(-1, GROUP)
    scales = groups.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / _LEVELS
    return [(groups / scales).round().to(torch.int8), scales]


def unpack_int8(packed: Sequence[Tensor], size: int) -> Tensor:
    """Undo `pack_int8`."""
    return (packed[0].float() * packed[1]).view(-1)[:size]


def pack_top_k(gradient: Tensor) -> list[Tensor]:
    """Return the places and values of the largest hundredth."""
    places = gradient.abs().topk(max(1, math.ceil(TOP_K * gradient.numel()))).indices
    return [places.int(), gradient[places]]


def unpack_top_k(packed: Sequence[Tensor], size: int) -> Tensor:
    """Undo `pack_top_k`; all other places are zero."""
    return torch.zeros(size).index_put_((packed[0].long(),), packed[1])


Pack = Callable[[Tensor], list[Tensor]]
Unpack = Callable[[Sequence[Tensor], int], Tensor]
METHODS: dict[str, tuple[Pack, Unpack, int]] = {  # and how many tensors a gradient becomes
    "BF16": (pack_bf16, unpack_bf16, 1),
    "INT8": (pack_int8, unpack_int8, 2),
    "TopK": (pack_top_k, unpack_top_k, 2),
}


def check(name: str) -> None:
    """Refuse what makes no sense here.

    Raises:
        ConfigurationError: names what there is.
    """
    if name != "None" and name not in METHODS:
        raise ConfigurationError(
            f"spec.strategy.compression: {name} is not for ParameterServer, whose workers push one by one. "
            f"It has {', '.join(METHODS)}."
        )


class Packer:
    """Packer packs a worker's flat gradients for one server, and keeps what was left out."""

    def __init__(self, name: str, layout: FlatLayout) -> None:
        self._name = name
        self._kept = [torch.zeros(count) for count in _counts(layout)] if name in METHODS else []

    def pack(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return what to send."""
        if self._name not in METHODS:
            return list(gradients)
        pack, unpack, _ = METHODS[self._name]
        sent: list[Tensor] = []
        for gradient, kept in zip(gradients, self._kept, strict=True):
            kept.add_(as_real(gradient).float())
            sent += (packed := pack(kept))
            kept.sub_(unpack(packed, kept.numel()))
        return sent


def unpack_all(name: str, tensors: Sequence[Tensor], layout: FlatLayout) -> list[Tensor]:
    """Return what a server received: flat gradients in the layout's dtypes, then the tensors that came behind them."""
    if name not in METHODS:
        return list(tensors)
    _, unpack, count = METHODS[name]
    found = []
    for index, (numbers, dtype) in enumerate(zip(_counts(layout), layout.dtypes, strict=True)):
        real = unpack(tensors[index * count : (index + 1) * count], numbers)
        found.append((torch.view_as_complex(real.view(-1, 2)) if dtype.is_complex else real).to(dtype))
    return [*found, *tensors[len(layout.sizes) * count :]]


def _counts(layout: FlatLayout) -> list[int]:
    """Return how many real numbers are in each buffer of the layout."""
    return [size * (2 if dtype.is_complex else 1) for size, dtype in zip(layout.sizes, layout.dtypes, strict=True)]
