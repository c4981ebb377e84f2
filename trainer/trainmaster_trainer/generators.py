"""What the state of a random number generator may hold, where it comes from a file.

A generator reads its table of 624 words at the position that its state names. NumPy takes any position without a look
at the end of the table, and torch looks at two of three numbers only, so a forged state reads foreign memory.
Used by `randomness.py` before any state reaches a library.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, uint8

WORDS = 624  # of the table of MT19937, the generator that all three libraries use
_WORD = 1 << 32
# Torch's: seed, left, seeded, next, table, three numbers of a normal draw, whether they are valid, a float, likewise.
_TORCH = struct.Struct("<Qii Q 4992x ddd i4x f?3x")


def numpy_state(name: object, key: Any, position: object, has_gauss: object, gauss: object) -> tuple[Any, ...]:
    """Return what `np.random.set_state` takes.

    Raises:
        ValueError: it is no state that `np.random.get_state` gives.
    """
    words = np.asarray(key, dtype=np.uint32)
    _require(name == "MT19937" and words.shape == (WORDS,), "NumPy's generator is no MT19937")
    _require(_is_within(position, WORDS), f"NumPy's generator is at position {position!r:.40} of {WORDS}")
    _require(_is_within(has_gauss, 1) and _is_finite(gauss), "NumPy's generator keeps a draw that is no number")
    return name, words, position, has_gauss, gauss


def python_state(version: object, numbers: Sequence[object], gauss_next: object) -> tuple[Any, ...]:
    """Return what `random.setstate` takes.

    Raises:
        ValueError: it is no state that `random.getstate` gives.
    """
    _require(version == 3 and len(numbers) == WORDS + 1, "Python's generator has another form")  # noqa: PLR2004 (its own)
    _require(all(_is_within(number, _WORD - 1) for number in numbers), "Python's generator has words beyond 32 bits")
    _require(_is_within(numbers[-1], WORDS), f"Python's generator is at position {numbers[-1]!r:.40} of {WORDS}")
    _require(gauss_next is None or _is_finite(gauss_next), "Python's generator keeps a draw that is no number")
    return version, tuple(numbers), gauss_next


def torch_state(state: Tensor) -> Tensor:
    """Return a copy of what `torch.set_rng_state` takes.

    Raises:
        ValueError: it is no state that `torch.get_rng_state` gives.
    """
    _require(state.dtype == uint8 and tuple(state.shape) == (_TORCH.size,), "torch's generator has another form")
    own = state.detach().cpu().contiguous().clone()
    data = own.numpy().tobytes()
    _, left, seeded, following, *normals, is_normal, single, _ = _TORCH.unpack(data)
    # It reads `left - 1` words from `following` on before it makes new ones.
    is_inside = 1 <= left <= WORDS and following <= WORDS and left + following <= WORDS + 1
    _require(seeded == 1 and is_inside, f"torch's generator is at position {following}, {left} words before its end")
    _require(is_normal in (0, 1) and data[-4] in (0, 1), "torch's generator keeps a draw that is no number")
    _require(all(map(math.isfinite, (*normals, single))), "torch's generator keeps a draw that is no number")
    return own


def _is_within(number: object, most: int) -> bool:
    return type(number) is int and 0 <= number <= most


def _is_finite(number: object) -> bool:
    return type(number) in (int, float) and math.isfinite(number)  # type: ignore[arg-type]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
