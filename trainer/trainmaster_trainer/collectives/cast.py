"""Send and add up tensors in a smaller dtype. BF16 halves the bytes of float32 and keeps its range."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.reducer import Reducer


class Cast(Reducer):
    """Cast converts a tensor to `dtype`, has another reducer add it up, and converts the sum back."""

    def __init__(self, reducer: Reducer, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.traffic = reducer.traffic
        self.in_rank_order = reducer.in_rank_order
        self._reducer = reducer
        self._dtype = dtype

    @override
    def sum(self, tensor: Tensor) -> None:
        travels = tensor.to(self._dtype, copy=True)
        self._reducer.sum(travels)
        tensor.copy_(travels)
