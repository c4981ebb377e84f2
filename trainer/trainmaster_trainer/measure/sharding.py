"""Measure what FullySharded adds to a layer: gathering it twice, spreading its gradients, torch's work.

It uses a few layers of several parameters each between two ranks, since on small layers the work around the
collectives is more than the bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from trainmaster.wire.measured import Exchange

from trainmaster_trainer.collectives.choose import share_shards
from trainmaster_trainer.group import Group
from trainmaster_trainer.measure.layers import size_of
from trainmaster_trainer.strategies.fully_sharded import shard

_LAYERS = 4
_INSIDE = 4  # matrices in each, with their biases: about as many parameters as a transformer's block has
_WIDTHS = (32, 256)  # layers of 16 KiB and of 1 MiB
_ROUNDS = 7


def measure_sharding(group: Group) -> list[Exchange]:
    """Return the seconds that are added to a layer of so many bytes. All ranks call it together, once."""
    mesh = init_device_mesh("cpu", (group.world_size,))
    shards = share_shards(group, list(range(group.world_size)))
    found = []
    for width in _WIDTHS:
        plain, spread = _stack(width), _stack(width)
        shard(spread, list(spread), mesh, shards)
        inputs = torch.zeros(1, width)
        added = _time(spread, inputs) - _time(plain, inputs)
        found.append(Exchange(size_of(list(plain[0].parameters())), max(0.0, added / _LAYERS)))
    return found


def _stack(width: int) -> nn.Sequential:
    layers = (nn.Sequential(*(nn.Linear(width, width) for _ in range(_INSIDE))) for _ in range(_LAYERS))
    return nn.Sequential(*layers)


def _time(model: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    taken = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        model(inputs).sum().backward()  # type: ignore[no-untyped-call]
        taken.append(time.perf_counter() - began)
    return median(taken[1:])
