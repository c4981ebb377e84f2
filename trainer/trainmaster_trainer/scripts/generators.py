"""Give random number generators a state_dict: a rank's own ones, and those that a script hands over as objects."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch

from trainmaster_trainer.randomness import Generators

_WORDS = 625  # of Python's generator: the state of MT19937, and where it stands


class OwnGenerators:
    """OwnGenerators is what a rank draws from: torch's generators (CPU and its GPU), NumPy's old one, and Python's."""

    def __init__(self) -> None:
        self._words: tuple[int, ...] = ()
        self._array = np.empty(0, dtype=np.uint32)  # of the same: making one takes longer than a look whether it is new
        self._last: Generators | None = None
        self._told: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the present states: the same object again where nothing was drawn."""
        now = Generators.now()
        if self._last is None or not now.is_same(self._last):
            version, words, gauss = now.python
            if words != self._words:
                self._words, self._array = words, np.array(words, dtype=np.uint32)
            python = [version, self._array, gauss]
            self._told = {"torch": now.torch, "cuda": now.cuda, "numpy": now.numpy, "python": python}
            self._last = now
        return self._told

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw from here on what was drawn after the state was taken."""
        version, words, gauss = state["python"]
        python = (version, tuple(map(int, words)), gauss)
        cuda = state["cuda"] if torch.cuda.is_available() else None
        Generators(state["torch"], cuda, tuple(state["numpy"]), python).put_back()

    def reseed(self, state: dict[str, Any], rank: int) -> None:
        """Draw other numbers than the rank whose state this is, but the same after each restart: `rank` is new."""
        text = state["torch"].numpy().tobytes() + str(rank).encode()
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        torch.manual_seed(seed)
        np.random.seed(seed % (1 << 32))  # noqa: NPY002 (scripts may draw from it)
        random.seed(seed)


class _TorchGenerator:
    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["state"])


class _NumpyGenerator:
    def __init__(self, generator: np.random.Generator) -> None:
        self._bits = generator.bit_generator

    def state_dict(self) -> dict[str, Any]:
        return dict(self._bits.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._bits.state = state


class _PythonGenerator:
    def __init__(self, generator: random.Random) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.setstate(state["state"])


_KINDS: dict[type, Any] = {
    torch.Generator: _TorchGenerator,
    np.random.Generator: _NumpyGenerator,
    random.Random: _PythonGenerator,
}


def with_state_dict(thing: Any) -> Any:
    """Return a generator with a state_dict around it; anything else as it is."""
    wrap = next((wrap for kind, wrap in _KINDS.items() if isinstance(thing, kind)), None)
    return wrap(thing) if wrap else thing
