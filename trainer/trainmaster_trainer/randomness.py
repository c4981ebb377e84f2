"""Make a step's random numbers follow from (seed, rank, step) and from nothing that was drawn before.

Three generators can be drawn from by a task: torch's (one per device), NumPy's old global one and Python's. They are
seeded before every step, so nothing of them has to outlive a process: a process that computes a step again, after
whatever loss, draws what was drawn there the first time.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NUMPYS_BYTES = 625 * 4  # NumPy's generator in memory: 624 words, and the place of the next one
ONE_AT_A_TIME = threading.Lock()
"""A lock for threads of one process that each seed and draw: the holder draws what it has seeded."""


def seed_alike(seed: int) -> None:
    """Seed all ranks with the same number, for what they make alike, such as the model."""
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    _seed(seed)


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Seed the generators with numbers of this rank in this step. It takes about 15 µs."""
    _seed(_mixed(seed, rank, step))


def seed_samples(seed: int, step: int, index: int, of: int) -> None:
    """Seed the generators for part `index` of `of` of a step's batch, alike on all ranks that make this part.

    What is drawn afterwards for anything else needs a seed of its own.
    """
    _seed(_mixed(seed, step, index, of))


def _mixed(*numbers: int) -> int:
    """Return one number of 64 bits from several: (1, 2) and (2, 1) have nothing in common."""
    # In 2 µs: NumPy's SeedSequence takes 12.
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "big")


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed asks all kinds of devices, every time: 0.1 ms
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # else torch would remember each seed until it is
        torch.cuda.manual_seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002 (tasks may draw from it)
    random.seed(seed)


class _NumpysState:
    """_NumpysState reads the state of NumPy's old generator: NumPy takes 30 µs for it, a look at its memory takes one.

    Who draws changes the words, or the place among them; but for the second of two normal numbers, as these are made in
    pairs. So a state that holds no such number is the present one as long as that memory is the same.
    """

    def __init__(self) -> None:
        self._state: Any = None
        self._memory = b""  # as the state was read; empty: it does not tell

    def now(self) -> Any:
        """Return the present state."""
        # Before the state is read: another thread may draw.
        find = getattr(np.random, "get_bit_generator", None)  # the NumPy of an image that is not ours may lack it
        generator: Any = find() if find else None
        known = type(generator) is np.random.MT19937
        memory = ctypes.string_at(generator.ctypes.state_address, _NUMPYS_BYTES) if known else b""
        if not memory or memory != self._memory:
            self._state = np.random.get_state()  # noqa: NPY002 (tasks may draw from it)
            self._memory = memory if memory and self._is_told_by(memory) else b""
        return self._state

    def _is_told_by(self, memory: bytes) -> bool:
        _, words, place, has_normal, _ = self._state
        return not has_normal and memory == words.tobytes() + int(place).to_bytes(4, sys.byteorder)


_numpys = _NumpysState()


@dataclass(frozen=True)
class Generators:
    """Generators holds the state of the generators at one moment."""

    torch: Tensor
    cuda: Tensor | None
    numpy: Any
    python: Any

    @classmethod
    def now(cls) -> Generators:
        """Return the present states."""
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        return cls(torch.get_rng_state(), cuda, _numpys.now(), random.getstate())

    def is_same(self, other: Generators) -> bool:
        """Return whether these are surely the same states."""
        if self.cuda is not None or self.numpy is not other.numpy:
            return False
        return self.python == other.python and torch.equal(self.torch, other.torch)

    def put_back(self) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.torch)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)
        np.random.set_state(self.numpy)  # noqa: NPY002 (likewise)
        random.setstate(self.python)
