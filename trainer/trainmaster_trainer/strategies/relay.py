"""Relay moves tensors of any shape between the ranks of a pipeline, and lets a model in stages be called as one.

It is for evaluation, and to learn the shapes between stages. A step of training uses torch's schedules, which must know
every shape beforehand; torch's own way of finding them out sends pickled objects. Here a small JSON text travels ahead
of each group of tensors.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from typing_extensions import override

Tensors = tuple[Tensor, ...]


class Relay:
    """Relay connects the ranks of one pipeline, by stage."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self._group = group
        self._device = device
        self.stage = dist.get_rank(group)
        self.stages = dist.get_world_size(group)

    def send(self, values: Any, to: int) -> None:
        """Send a tensor, or a tuple of tensors, to another stage."""
        tensors: Tensors = (values,) if isinstance(values, Tensor) else tuple(values)
        forms = [[str(one.dtype).removeprefix("torch."), list(one.shape), one.requires_grad] for one in tensors]
        text = json.dumps({"alone": isinstance(values, Tensor), "tensors": forms}).encode()
        for part in (torch.tensor([len(text)]), torch.frombuffer(bytearray(text), dtype=torch.uint8)):
            dist.send(part, group=self._group, group_dst=to)
        for one in tensors:
            if one.numel():
                dist.send(_bytes(one.detach().contiguous()), group=self._group, group_dst=to)

    def receive(self, source: int) -> Any:
        """Return what stage `source` sends, with the same `requires_grad`."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.recv(length, group=self._group, group_src=source)
        text = torch.zeros(int(length), dtype=torch.uint8)
        dist.recv(text, group=self._group, group_src=source)
        head = json.loads(text.numpy().tobytes())
        values = tuple(self._receive(source, *form) for form in head["tensors"])
        return values[0] if head["alone"] else values

    def _receive(self, source: int, dtype: str, shape: list[int], gradient: bool) -> Tensor:
        value = torch.empty(shape, dtype=getattr(torch, dtype), device=self._device)
        if value.numel():
            dist.recv(_bytes(value), group=self._group, group_src=source)
        return value.requires_grad_(gradient)


class Relayed(nn.Module):
    """Relayed is the whole model as one rank can call it: all ranks call it, with equal inputs, and get the outputs."""

    def __init__(self, stage: nn.Module, relay: Relay) -> None:
        super().__init__()
        self.stage = stage
        self._relay = relay

    @override
    def forward(self, inputs: Any) -> Any:
        _, outputs = self.pass_on(inputs)
        relay, last = self._relay, self._relay.stages - 1
        if relay.stage != last:
            return relay.receive(last)
        for other in range(last):
            relay.send(outputs, other)
        return outputs

    def pass_on(self, inputs: Any) -> tuple[Tensors, Any]:
        """Run this stage. Return what came into it and what came out."""
        relay = self._relay
        came = (inputs,) if relay.stage == 0 else relay.receive(relay.stage - 1)
        came = (came,) if isinstance(came, Tensor) else tuple(came)
        outputs = self.stage(*came)
        if relay.stage < relay.stages - 1:
            relay.send(outputs, relay.stage + 1)
        return came, outputs


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)
