"""Tasks that leave in their own way: too early, or with a thread that goes on."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from small import Small  # type: ignore[import-not-found]
from typing_extensions import override


class Leaves(Small):  # type: ignore[misc]
    """Ends the process with exit code 0 at a step, by the function of this name."""

    def __init__(self, way: str, at: int = 3) -> None:
        super().__init__()
        self.way, self.at = way, at

    @override
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = super().loss(outputs, targets)
        if self.calls == self.at:
            ways: dict[str, Any] = {"os._exit": os._exit, "sys.exit": sys.exit}
            ways[self.way](0)
        return loss


class Lingers(Small):  # type: ignore[misc]
    """Starts a thread that nobody ends; `raise_at` as for Small."""

    def __init__(self, raise_at: int = 0) -> None:
        super().__init__(raise_at=raise_at)

    @override
    def model(self) -> torch.nn.Module:
        threading.Thread(target=threading.Event().wait, name="endless").start()
        model: torch.nn.Module = super().model()
        return model


class Pools(Small):  # type: ignore[misc]
    """Has a pool of threads that wait for more work."""

    @override
    def model(self) -> torch.nn.Module:
        self.pool = ThreadPoolExecutor(2)
        model: torch.nn.Module = self.pool.submit(super().model).result()
        return model
