"""Make a step's random numbers follow from (seed, rank, step) and from nothing that was drawn before.

Three generators can be drawn from by a task: torch's (one per device), NumPy's old global one and Python's. They are
seeded before every step, so nothing of them has to outlive a process: a process that computes a step again, after
whatever loss, draws what was drawn there the first time.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NUMPYS_BYTES = 625 * 4  # NumPy's generator in memory: 624 words, and the place of the next one
_PYTHONS_BYTES = 625 * 4  # Python's, behind the head of its object: the place of the next word, and 624 words
_IN_MEMORY = sys.implementation.name == "cpython"  # an object's id is its address
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


class _LookedAt:
    """_LookedAt keeps the state of a generator, and looks at its memory whether that is still the present one.

    NumPy takes 30 µs for its state, and Python 20, for 625 numbers each. `read` is asked again where the memory has
    changed, or does not tell: a library that is not ours may keep it elsewhere.
    """

    def __init__(
        self, read: Callable[[], Any], look: Callable[[], bytes], is_told_by: Callable[[Any, bytes], bool]
    ) -> None:
        self._read, self._look, self._is_told_by = read, look, is_told_by
        self._state: Any = None
        self._memory = b""  # as the state was read; empty: it does not tell

    def now(self) -> Any:
        """Return the present state: the same object again where nothing was drawn."""
        memory = self._look()  # before the state is read: another thread may draw
        if not memory or memory != self._memory:
            self._state = self._read()
            self._memory = memory if memory and self._is_told_by(self._state, memory) else b""
        return self._state


def _numpys_memory() -> bytes:
    find = getattr(np.random, "get_bit_generator", None)  # the NumPy of an image that is not ours may lack it
    generator: Any = find() if find else None
    known = type(generator) is np.random.MT19937
    return ctypes.string_at(generator.ctypes.state_address, _NUMPYS_BYTES) if known else b""


def _numpys_is_told_by(state: Any, memory: bytes) -> bool:
    """Return whether a state is the present one as long as this memory is the same.

    Who draws changes the words, or the place among them; but for the second of two normal numbers, as these are made in
    pairs.
    """
    _, words, place, has_normal, _ = state
    return not has_normal and bool(memory == words.tobytes() + int(place).to_bytes(4, sys.byteorder))


def _pythons_memory() -> bytes:
    generator: Any = random._inst  # noqa: SLF001 it has no public name
    known = _IN_MEMORY and type(generator) is random.Random and generator.__dict__.get("gauss_next", 0) is None
    return ctypes.string_at(id(generator) + object.__basicsize__, _PYTHONS_BYTES) if known else b""


def _pythons_is_told_by(state: Any, memory: bytes) -> bool:
    _, (*words, place), second_normal = state
    there = struct.pack(f"=i{len(words)}I", place, *words)
    return second_normal is None and there == memory


def _torchs_memory() -> bytes:
    state = torch.default_generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())


_torchs = _LookedAt(torch.get_rng_state, _torchs_memory, lambda *_: True)
_numpys = _LookedAt(np.random.get_state, _numpys_memory, _numpys_is_told_by)
_pythons = _LookedAt(random.getstate, _pythons_memory, _pythons_is_told_by)


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
        return cls(_torchs.now(), cuda, _numpys.now(), _pythons.now())

    def is_same(self, other: Generators) -> bool:
        """Return whether these are surely the same states; never where there is a GPU, of which nothing is compared."""
        return self.cuda is None and self.is_equal(other)

    def is_equal(self, other: Generators) -> bool:
        """Return whether these are surely the same states, that of a GPU compared as well."""
        cuda, others = self.cuda, other.cuda
        same_cuda = cuda is others or (cuda is not None and others is not None and torch.equal(cuda, others))
        return same_cuda and self.torch is other.torch and self.numpy is other.numpy and self.python is other.python

    def put_back(self) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.torch)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)
        np.random.set_state(self.numpy)  # noqa: NPY002 (likewise)
        random.setstate(self.python)
