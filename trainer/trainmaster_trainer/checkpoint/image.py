"""Image is a shard in memory as its file will have it: the header, then the tensors, each at its place.

The copies of live tensors are made here (`copier.py`), and a big file goes from here to the disk (`bulk.py`), which
takes whole pages: with a buffer for each tensor, every byte would have to be copied once more on its way.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trainmaster_trainer.checkpoint.bulk import aligned_memory
from trainmaster_trainer.checkpoint.shard import laid_out


class Image:
    """Image holds memory for the shard of tensors like these, and is kept from save to save."""

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        like, header = laid_out(like)
        memory = aligned_memory(len(header) + sum(tensor.nbytes for tensor in like.values()))
        memory[: len(header)] = header
        self.view = memoryview(memory)
        self.tensors: dict[str, Tensor] = {}
        position = len(header)
        for name, tensor in like.items():
            if tensor.numel():
                flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=position)
                self.tensors[name] = flat.view(tensor.shape)
            else:  # `frombuffer` refuses to give nothing
                self.tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            position += tensor.nbytes
