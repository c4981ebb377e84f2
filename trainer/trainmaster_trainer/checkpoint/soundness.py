"""Check whether a state has NaN or infinite numbers that training put there.

A state with a NaN or an infinite number in it is no state to go on from: no checkpoint of it may be kept. What a tensor
held when the model was made is allowed, such as a mask of -inf or memory that was never written to; only what training
has added counts. A buffer may come to hold infinite numbers later, too, as a mask does that is filled by the first
forward pass; NaN it may not.

The bits are compared as whole numbers: that is exact for every floating-point format, and takes a tenth of the time
that the hash of the same bytes takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

# Of each format: the whole numbers of its width; the bits of its largest finite number and of infinity, without a sign.
# What is larger is NaN. The last format has no infinity.
_FORMATS = {
    torch.float64: (torch.int64, 0x7FEF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    torch.float32: (torch.int32, 0x7F7F_FFFF, 0x7F80_0000),
    torch.bfloat16: (torch.int16, 0x7F7F, 0x7F80),
    torch.float16: (torch.int16, 0x7BFF, 0x7C00),
    torch.float8_e5m2: (torch.int8, 0x7B, 0x7C),
    torch.float8_e4m3fn: (torch.int8, 0x7E, 0x7E),
}


class Oddity(IntEnum):
    """Name the worst kind of number in a tensor."""

    NONE = 0  # finite numbers alone
    INFINITE = 1
    NAN = 2


Allowed = Mapping[str, int]  # the worst that a tensor may hold, by its name in a state; others hold finite numbers


class UnsoundError(Exception):
    """A tensor that was to be saved is not finite."""


def oddity(tensor: Tensor) -> Oddity:
    """Return the worst kind of number in a tensor."""
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    if numbers.dtype not in _FORMATS or not numbers.numel() or numbers.is_meta:
        return Oddity.NONE
    if numbers.device.type != "cpu" and bool(numbers.isfinite().all()):
        return Oddity.NONE  # the device looks at its own memory, and little is copied
    whole, finite, infinity = _FORMATS[numbers.dtype]
    bits = numbers.detach().contiguous().cpu().view(whole).numpy()
    unsigned = bits.view(bits.dtype.str.replace("i", "u"))
    # Numbers with a sign are the largest of all without regard to it.
    sign = 1 << (8 * bits.itemsize - 1)
    largest = max(int(np.max(bits)), int(np.max(unsigned)) - sign)
    if largest <= finite:
        return Oddity.NONE
    return Oddity.INFINITE if largest == infinity else Oddity.NAN


def allowed_in(tensors: Mapping[str, Tensor], buffers: Collection[str]) -> dict[str, int]:
    """Return what the tensors of a state may always hold, as they hold it before the first step.

    `buffers`: which of them no optimizer moves.
    """
    found = {name: max(oddity(tensor), Oddity.INFINITE if name in buffers else 0) for name, tensor in tensors.items()}
    return {name: int(worst) for name, worst in found.items() if worst}


def complaint(name: str, tensor: Tensor, allowed: Allowed) -> str:
    """Return what is wrong with a tensor of a state, in words; nothing where it is sound."""
    worst = oddity(tensor)
    if worst <= allowed.get(name, Oddity.NONE) or (worst == Oddity.INFINITE and tensor.dim() == 0):
        return ""  # a single number may be a bound that nothing has reached yet
    return f"{name} holds {'NaN' if worst == Oddity.NAN else 'an infinite number'}"
