"""Decide what part of a tensor a rank holds, and bring the parts together where a checkpoint is written.

A checkpoint holds whole tensors under the names of the whole model, under every strategy: so it has one hash, is saved
once, and is read by any strategy at any world size. Ranks that split a model therefore send their parts of each
tensor to the rank that writes it; every rank writes about the same number of bytes, and none ever holds more than
its own part and what it writes. (docs/decisions/0020.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


@dataclass(frozen=True)
class Piece:
    """A piece is a box in a tensor: where it begins in each dimension, and how far it goes."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """Return the slices of the whole tensor."""
        return tuple(slice(begin, begin + length) for begin, length in zip(self.offset, self.shape, strict=True))


def piece_of(tensor: Tensor) -> Piece:
    """Return what this rank holds of a tensor: all of it, unless it is a DTensor."""
    if not isinstance(tensor, DTensor):
        return Piece((0,) * tensor.dim(), tuple(tensor.shape))
    if any(isinstance(placement, Partial) for placement in tensor.placements):
        raise ValueError("a sum that is not finished cannot be saved")
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return Piece(tuple(offset), tuple(shape))


def local(tensor: Tensor) -> Tensor:
    """Return the part that this rank has, as a plain tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def placed_like(value: Tensor, model: Tensor) -> Tensor:
    """Return a whole tensor placed like `model`: on its device, and only this rank's part if that is a DTensor.

    A value of another shape than `model` (a mean over rows, say) is kept whole on every rank.
    """
    if not isinstance(model, DTensor) or value.dim() == 0:
        return value.to(model.device, copy=True)
    shape = value.shape
    placements: Any = [Replicate()] * model.device_mesh.ndim
    if shape == model.shape:
        placements = model.placements
        value = value[piece_of(model).slices]
    return _dtensor(value.to(model.device, copy=True).contiguous(), model, placements, shape)


def local_like(value: Tensor, model: Tensor) -> Tensor:
    """Undo `local`: return this rank's part as `model` is."""
    own = value.to(model.device, copy=True)
    if not isinstance(model, DTensor) or value.dim() == 0:
        return own
    if value.shape == model.to_local().shape:
        return _dtensor(own, model, model.placements, model.shape)
    return _dtensor(own, model, [Replicate()] * model.device_mesh.ndim, value.shape)


def _dtensor(own: Tensor, model: DTensor, placements: Any, shape: torch.Size) -> Tensor:
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(own, model.device_mesh, placements, run_check=False, shape=shape, stride=stride)


@dataclass(frozen=True)
class HeldTensor:
    """HeldTensor says what a rank has of one tensor."""

    dtype: str
    whole: tuple[int, ...]  # shape
    piece: Piece


@dataclass(frozen=True)
class Holding:
    """Holding is what one rank says of its tensors before a save."""

    writes: bool
    tensors: dict[str, HeldTensor]
    allowed: dict[str, int] = field(default_factory=dict)  # of its tensors, see `soundness.py`


def collect(
    tensors: dict[str, Tensor],
    holdings: list[Holding],
    wanted: dict[str, list[int]],
    rank: int,
    processes: dist.ProcessGroup | None = None,
) -> dict[str, Tensor]:
    """Return whole CPU copies of the tensors that this rank wants. All ranks call it with equal holdings and wishes.

    `wanted`: which ranks get each tensor. The pieces travel point to point, all under way at once; where several
    ranks hold the same piece, the first of them sends it. `processes`: over which; None: torch's default group.
    """
    forms = {name: held for holding in holdings for name, held in holding.tensors.items()}
    mine = {name: forms[name] for name, receivers in sorted(wanted.items()) if rank in receivers}
    whole = {name: torch.empty(held.whole, dtype=getattr(torch, held.dtype)) for name, held in mine.items()}
    copies: dict[str, Tensor] = {}
    works: list[Any] = []
    arrivals: list[tuple[Tensor, Tensor]] = []  # where it goes, what arrived
    # All travels as bytes: gloo does not know every dtype that a checkpoint does.
    for name, piece, sender, receiver in _moves(holdings, wanted):
        if sender == receiver == rank:
            whole[name][piece.slices].copy_(local(tensors[name]))
        elif sender == rank:
            if name not in copies:  # one copy, however many ranks want it
                copies[name] = local(tensors[name]).detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            works.append(dist.isend(copies[name], receiver, processes))
        elif receiver == rank:
            part = whole[name][piece.slices]
            buffer = part if part.is_contiguous() else torch.empty(part.shape, dtype=part.dtype)
            works.append(dist.irecv(buffer.reshape(-1).view(torch.uint8), sender, processes))
            if buffer is not part:
                arrivals.append((part, buffer))
    for work in works:
        work.wait()
    for part, buffer in arrivals:
        part.copy_(buffer)
    return whole


def _moves(holdings: list[Holding], wanted: dict[str, list[int]]) -> Iterator[tuple[str, Piece, int, int]]:
    """Yield each piece that goes from rank to rank: of which tensor it is, its sender, its receiver.

    Both sides walk through the same list, so messages need no labels.
    """
    for name in sorted(wanted):
        holders: dict[Piece, list[int]] = {}  # the different pieces of it, and the ranks that hold each
        for holder, holding in enumerate(holdings):
            held = holding.tensors.get(name)
            if held is not None and 0 not in held.piece.shape:  # ranks beyond the end of a short tensor hold nothing
                holders.setdefault(held.piece, []).append(holder)
        for piece, having in holders.items():
            for receiver in wanted[name]:
                yield name, piece, receiver if receiver in having else having[0], receiver
