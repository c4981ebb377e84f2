"""Compare what the ranks of a script want to be kept: a checkpoint holds one model for all of them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainmaster_trainer.checkpoint.state import dtype_name
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.scripts.script_objects import ScriptObjects, listed


def check_alike(objects: ScriptObjects, group: Group) -> None:
    """Check that all ranks have given the same objects, and modules of the same shapes. All ranks call it.

    Raises:
        ConfigurationError: names the first difference.
    """
    forms = {
        full: [dtype_name(one.dtype), list(one.shape)]
        for tensors in objects.copies().values()
        for full, one in tensors.items()
    }
    digest = hashlib.sha256(json.dumps(forms, sort_keys=True).encode()).hexdigest()
    told = group.gather([objects.kinds, digest])
    for rank, (other, _) in enumerate(told):
        if other != told[0][0]:
            raise ConfigurationError(
                f"session.state: rank 0 gave {listed(told[0][0])}, and rank {rank} gave {listed(other)}. Give the same "
                "objects, of the same types, on all ranks."
            )
    if any(other != digest for _, other in told):
        raise ConfigurationError(_difference(group.gather(forms)))


def _difference(forms: list[dict[str, Any]]) -> str:
    rank = next(rank for rank, other in enumerate(forms) if other != forms[0])
    first, other = forms[0], forms[rank]
    name = min(one for one in {*first, *other} if first.get(one) != other.get(one))
    there, here = ("{}{}".format(*form) if form else "absent" for form in (first.get(name), other.get(name)))
    return (
        f"session.state: the ranks have different models. First difference: {name} is {there} on rank 0 and {here} on "
        f"rank {rank}. Make the same on all ranks."
    )


class Copies:
    """Copies compares what the ranks have at saves 1, 2, 4, 8, ..., as each rank writes only a part of it."""

    def __init__(self, objects: ScriptObjects, group: Group) -> None:
        self._objects = objects
        self._group = group
        self._saves = 0

    def check(self, step: int) -> None:
        """Check that the ranks' modules and optimizers are equal. All ranks call it before each save.

        Raises:
            ConfigurationError: they are not, and one checkpoint cannot hold them all.
        """
        self._saves += 1
        if self._group.world_size == 1 or self._saves & (self._saves - 1):
            return
        told = self._group.gather({name: _checksum(one.values()) for name, one in self._objects.copies().items()})
        for rank, other in enumerate(told):
            name = next((name for name in other if other[name] != told[0][name]), None)
            if name is not None:
                raise ConfigurationError(
                    f"session.state: after step {step}, {name} on rank 0 and on rank {rank} are not equal, and a "
                    "checkpoint holds one for all ranks. Wrap the model in DistributedDataParallel (or average "
                    "gradients over all ranks), and make the same steps on all of them."
                )


def _checksum(tensors: Iterable[Tensor]) -> int:
    total = 0
    for tensor in tensors:
        if not isinstance(tensor, DTensor):
            data: Any = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            total = zlib.crc32(data, total)
    return total
