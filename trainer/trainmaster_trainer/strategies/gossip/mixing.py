"""Average two models, atomically on both sides, whatever else they do, and without a lock held across the network.

    asker                                   answerer
      sends its x (or k entries of it) ---->  d = (y - x) / 2;  y := y - d     under the answerer's lock
      x := x + d   under the asker's lock  <----  d

If neither changed meanwhile, both have the average. If one did (a step of its own, another meeting), the difference is
still added to one and taken from the other: the sum over all peers never changes, and no two peers can wait for one
another. With `top_k` only some entries travel: half of them those that changed most since they were last sent, half
those whose turn it is, so that none is left out for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

AVERAGED = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)


class Mixer:
    """Mixer holds one peer's parameters as flat buffers that others may change at any time under `lock`.

    Parameters that no optimizer can step (whole numbers, 8 bits) are the same everywhere, and are not sent.
    """

    def __init__(self, buffers: Sequence[Tensor], top_k_percent: int | None = None) -> None:
        self.lock = threading.RLock()
        self.buffers = [buffer for buffer in buffers if buffer.dtype in AVERAGED]
        self._percent = top_k_percent
        self._sent = [buffer.clone() for buffer in self.buffers] if top_k_percent else []
        self._turns = [0 for _ in self.buffers]

    def offer(self) -> list[Tensor]:
        """Return what to send: all values, or places and values."""
        with self.lock:
            if self._percent is None:
                return [buffer.clone() for buffer in self.buffers]
            chosen: list[Tensor] = []
            for index, (buffer, sent) in enumerate(zip(self.buffers, self._sent, strict=True)):
                places = self._choose(index, (buffer - sent).abs())
                sent[places] = buffer[places]
                chosen += [places, buffer[places]]
            return chosen

    def _choose(self, index: int, change: Tensor) -> Tensor:
        """Return the places to send, each once: a place that came twice would be added twice."""
        half = max(1, change.numel() * (self._percent or 0) // 200)
        turn = (torch.arange(half) + self._turns[index]) % change.numel()
        self._turns[index] = (self._turns[index] + half) % change.numel()
        places: Tensor = torch.unique(torch.cat([change.topk(half).indices, turn]))
        return places

    def meet(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        """Take the answerer's half step and return the asker's."""
        with self.lock:
            if self._percent is None:
                half = [(own - other).div_(2) for own, other in zip(self.buffers, theirs, strict=True)]
                for own, step in zip(self.buffers, half, strict=True):
                    own.sub_(step)
                return half
            half = []
            for own, places, other in zip(self.buffers, theirs[::2], theirs[1::2], strict=True):
                half.append((own[places] - other).div_(2))
                own.index_add_(0, places, half[-1], alpha=-1)
            return half

    def settle(self, offered: Sequence[Tensor], half: Sequence[Tensor]) -> float:
        """Take the asker's half step. Return the distance of the two models relative to the length of what was sent."""
        with self.lock:
            if self._percent is None:
                values = list(offered)
                for own, step in zip(self.buffers, half, strict=True):
                    own.add_(step)
            else:
                values = list(offered[1::2])
                for own, sent, places, step in zip(self.buffers, self._sent, offered[::2], half, strict=True):
                    own.index_add_(0, places, step)
                    sent[places] = own[places]
        length = sum(float(value.abs().float().square().sum()) for value in values)
        apart = sum(float(step.abs().float().square().sum()) for step in half)
        return 2 * float(torch.tensor(apart).sqrt()) / max(float(torch.tensor(length).sqrt()), 1e-12)
