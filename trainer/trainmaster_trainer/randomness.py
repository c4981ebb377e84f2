"""Random numbers: seeded from (seed, rank), and carried over a restart; those of samples from their place alone.

Three generators can be drawn from by a task: torch's (one per device), NumPy's old global one and Python's.
Called by `loop.py`, `data.py` and `checkpoint/`.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainmaster_trainer.generators import numpy_state, python_state, torch_state

_PACKED = 8192  # bytes, more than 625 numbers of 32 bits take as JSON
_GLOBAL: Any = np.random  # whose stubs leave out what exchanges its generator
_OF_SAMPLES = np.random.MT19937(0)  # what NumPy's global functions draw from in `set_aside`


def seed_alike(seed: int) -> None:
    """The same numbers on every rank: for making the model."""
    _seed(seed)


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Numbers of this rank's own. `step` is where it starts: a rank that is new at step 90 repeats nobody's."""
    _seed(_mixed(seed, rank, step))


def seed_samples(seed: int, step: int, index: int, of: int) -> None:
    """The same numbers for whoever makes part `index` of `of` of a step's batch, and for nothing else."""
    _seed(_mixed(seed, step, index, of))


def _mixed(*numbers: int) -> int:
    """One number of 64 bits from several: (1, 2) and (2, 1) have nothing in common."""
    # In 2 µs: NumPy's SeedSequence takes 12.
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "big")


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed asks all kinds of devices, every time: 0.1 ms
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002 (tasks may draw from it)
    random.seed(seed)


def capture() -> dict[str, Tensor]:
    """The state of the generators, as byte tensors."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002 (tasks may draw from it, so it is ours to keep)
    states = {
        "torch": torch.get_rng_state(),
        "numpy": _pack([name, np.asarray(key).tolist(), *rest]),
        "python": _pack(random.getstate()),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore(states: dict[str, Tensor]) -> None:
    """Put the generators where `capture` found them."""
    torch.set_rng_state(torch_state(states["torch"]))
    np.random.set_state(numpy_state(*_unpack(states["numpy"])))  # noqa: NPY002 (likewise)
    random.setstate(python_state(*_unpack(states["python"])))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


@contextmanager
def set_aside() -> Iterator[None]:
    """Whatever is seeded and drawn within, the generators go on afterwards as if nothing had been.

    It takes microseconds, so NumPy's is exchanged for another one: to read and to set its state takes 70. Only the
    second of two normal numbers, which NumPy makes in pairs, is forgotten; in every run alike.
    """
    on_gpu = torch.cuda.is_available()
    python, cpu, gpu = random.getstate(), torch.get_rng_state(), torch.cuda.get_rng_state() if on_gpu else None
    numpy = _GLOBAL.get_bit_generator()
    _GLOBAL.set_bit_generator(_OF_SAMPLES)
    try:
        yield
    finally:
        _GLOBAL.set_bit_generator(numpy)
        random.setstate(python)
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu)


def check(found: Iterable[Mapping[str, Tensor]]) -> None:
    """Try on generators that nobody draws from whether `restore` could take each of these.

    Raises:
        ValueError: it could not.
    """
    numpys, pythons = np.random.RandomState(0), random.Random(0)  # noqa: S311 (nothing is drawn)
    try:
        for states in found:
            torch.Generator().set_state(torch_state(states["torch"]))
            numpys.set_state(numpy_state(*_unpack(states["numpy"])))
            pythons.setstate(python_state(*_unpack(states["python"])))
            if "cuda" in states and torch.cuda.is_available():
                torch.Generator("cuda").set_state(states["cuda"])
    except (RuntimeError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"the state of a random number generator cannot be taken: {error!r:.200}") from None


_PYTHON = struct.Struct("<625Id?I")
_NUMPY = struct.Struct("<IId")


def capture_quickly() -> dict[str, Tensor]:
    """The same in a form that takes microseconds, for snapshots at every step: read by this same version only."""
    _, key, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 (likewise)
    version, numbers, gauss_next = random.getstate()
    states = {
        "torch": torch.get_rng_state(),
        "numpy": _bytes(np.asarray(key, dtype="<u4").tobytes() + _NUMPY.pack(position, has_gauss, gauss)),
        "python": _bytes(_PYTHON.pack(*numbers, gauss_next or 0.0, gauss_next is not None, version)),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_quickly(states: dict[str, Tensor]) -> None:
    """Put the generators where `capture_quickly` found them."""
    torch.set_rng_state(torch_state(states["torch"]))
    data = states["numpy"].numpy().tobytes()
    key, rest = np.frombuffer(data[: -_NUMPY.size], dtype="<u4"), _NUMPY.unpack(data[-_NUMPY.size :])
    np.random.set_state(numpy_state("MT19937", key, *rest))  # noqa: NPY002 (likewise)
    *numbers, gauss, has_gauss, version = _PYTHON.unpack(states["python"].numpy().tobytes())
    random.setstate(python_state(version, numbers, gauss if has_gauss else None))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].clone())


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _pack(value: object) -> Tensor:
    # JSON keeps every digit of a float, and needs no pickle to read. Always as long: what was drawn must not change
    # where all else of a checkpoint lies.
    return torch.frombuffer(bytearray(json.dumps(value).encode().ljust(_PACKED)), dtype=torch.uint8)


def _unpack(data: Tensor) -> list[Any]:
    if data.numel() > _PACKED:
        raise ValueError(f"the state of a generator has {data.numel()} bytes instead of {_PACKED}")
    return list(json.loads(data.numpy().tobytes()))
