"""A forged state of a random number generator, which would read foreign memory, is refused before a library has it."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from trainmaster_trainer import randomness

States = dict[str, torch.Tensor]
Forge = Callable[[States], None]


def _json(states: States, name: str, change: Callable[[list[Any]], object]) -> None:
    value = json.loads(states[name].numpy().tobytes())
    change(value)
    data = json.dumps(value).encode().ljust(states[name].numel())
    states[name] = torch.frombuffer(bytearray(data), dtype=torch.uint8)


def of_numpy(index: int, value: object) -> Forge:
    return lambda states: _json(states, "numpy", lambda plain: plain.__setitem__(index, value))


def of_python(index: int, value: object) -> Forge:
    return lambda states: _json(states, "python", lambda plain: plain[1].__setitem__(index, value))


def of_torch(left: int, following: int) -> Forge:
    def forge(states: States) -> None:
        data = bytearray(states["torch"].numpy().tobytes())
        struct.pack_into("<iiQ", data, 8, left, 1, following)
        states["torch"] = torch.frombuffer(data, dtype=torch.uint8)

    return forge


def cut_short(name: str) -> Forge:
    return lambda states: states.update({name: states[name][:-1]})


FORGERIES: dict[str, Forge] = {
    "numpy one beyond": of_numpy(2, 625),
    "numpy far beyond": of_numpy(2, 10**8),
    "numpy before": of_numpy(2, -1),
    "numpy huge": of_numpy(2, 10**40),
    "numpy float": of_numpy(2, 1.0),
    "numpy other": of_numpy(0, "PCG64"),
    "numpy short": of_numpy(1, [1, 2, 3]),
    "numpy half a word": of_numpy(1, [0.5] * 623 + [1 << 32]),
    "numpy gauss": of_numpy(4, float("inf")),
    "numpy pair": of_numpy(3, 2**31 - 1),
    "python beyond": of_python(-1, 625),
    "python before": of_python(-1, -7),
    "python word": of_python(0, 1 << 32),
    "python gauss": lambda states: _json(states, "python", lambda plain: plain.__setitem__(2, "x")),
    "torch beyond": of_torch(600, 624),
    "torch one beyond": of_torch(2, 624),
    "torch huge": of_torch(2**30, 2**30),
    "torch wraps": of_torch(1, 2**32),
    "torch none left": of_torch(0, 5),
    "torch size": cut_short("torch"),
    "numpy size": lambda states: states.update(numpy=torch.zeros(1 << 20, dtype=torch.uint8)),
    "deep": lambda states: states.update(python=torch.frombuffer(bytearray(b"[" * 8000), dtype=torch.uint8)),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_state_is_refused(name: str) -> None:
    states = randomness.capture()
    FORGERIES[name](states)
    with pytest.raises(ValueError, match="generator"):
        randomness.check([states])


@pytest.mark.parametrize("position", [625, 10**8, -1])
def test_nor_does_a_snapshot_in_memory_bring_one(position: int) -> None:
    states = randomness.capture_quickly()
    data = bytearray(states["numpy"].numpy().tobytes())
    struct.pack_into("<i", data, 4 * 624, position)
    with pytest.raises(ValueError, match="NumPy's generator is at position"):
        randomness.restore_quickly({**states, "numpy": torch.frombuffer(data, dtype=torch.uint8)})


def test_every_true_state_is_taken() -> None:
    """Also before the first draw and around the end of the table, where the positions of the three are special."""
    before = randomness.capture()
    try:
        randomness.seed_alike(5)
        for _ in range(630):
            states, quick = randomness.capture(), randomness.capture_quickly()
            randomness.check([states])
            randomness.restore(states)
            randomness.restore_quickly(quick)
            drawn = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002, S311 (the generators in question)
            randomness.restore(states)
            assert (torch.rand(1), np.random.rand(), random.random()) == drawn  # noqa: NPY002, S311 (likewise)
    finally:
        randomness.restore(before)
