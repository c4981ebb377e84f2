"""Copying live tensors while training goes on: weights do not change in forward and backward passes.

What only an optimizer's step changes is copied by the thread that saves, into buffers that are kept from save to save;
the next optimizer step waits for what is not copied yet, by a hook of torch's that every optimizer calls. All else is
copied at once. (DataStates-LLM, Maurya et al., HPDC 2024.) A tensor that changed nevertheless is noticed by torch's
version counter: that save fails, and from then on everything is copied at once. Used by `save.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

Settled = Callable[[str], bool]


class Copier:
    """One per saver: a copy is under way at most once."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._copied = threading.Event()
        self._copied.set()
        self._later: list[tuple[Tensor, Tensor, int]] = []  # where from, where to, version
        self._careful = False
        self._hook = register_optimizer_step_pre_hook(self._before_optimizer)
        self.waited = 0.0  # seconds that optimizer steps have waited

    def begin(self, tensors: Mapping[str, Tensor], settled: Settled) -> dict[str, Tensor]:
        """Buffers for a copy; those of settled tensors are filled by `finish`."""
        self._copied.wait()
        buffers = {name: self._buffer(name, tensor) for name, tensor in tensors.items()}
        self._buffers = buffers
        self._later = []
        for name, tensor in tensors.items():
            if settled(name) and not self._careful and not tensor.is_inference():
                self._later.append((tensor, buffers[name], tensor._version))  # noqa: SLF001 (autograd's own guard against the same)
            else:
                buffers[name].copy_(tensor)
        if self._later:
            self._copied.clear()
        return buffers

    def finish(self) -> None:
        """Copy what is left, in the thread that saves.

        Raises:
            RuntimeError: something changed meanwhile, so there is no copy of one moment.
        """
        torn = False
        try:
            for tensor, buffer, version in self._later:
                buffer.copy_(tensor)
                torn = torn or tensor._version != version  # noqa: SLF001 (likewise)
        finally:
            self._later = []
            self._copied.set()
        if torn:
            self._careful = True
            raise RuntimeError("a weight changed while it was copied; the next save copies before training goes on")

    def close(self) -> None:
        """Let the optimizers go."""
        self._hook.remove()

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._buffers.get(name)
        if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
            return kept
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    def _before_optimizer(self, *_: Any) -> None:
        if not self._copied.is_set():
            began = time.perf_counter()
            self._copied.wait()
            self.waited += time.perf_counter() - began


def nothing_settled(_: str) -> bool:
    """For strategies that change weights by other ways than an optimizer's step."""
    return False
