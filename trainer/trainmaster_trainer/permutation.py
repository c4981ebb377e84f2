"""Decide the order of an epoch: a permutation of range(n) of which any part can be computed alone.

Few samples are sorted by random keys: the raw 64-bit output of Philox (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011), a stream that NumPy promises for ever, as it does not its own shuffle.

Of many, that would take seconds and gigabytes of each rank at each restart. They go through a Feistel network (Luby and
Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", SIAM J. Comput. 1988) over the
smallest power of two that holds n, which gives any place alone. Its round function is the finalizer of SplitMix64
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). What falls outside of range(n)
goes through again until it is inside: less than once on average (cycle walking: Black and Rogaway, "Ciphers with
arbitrary finite domains", CT-RSA 2002).

Both use integers alone, so they are the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
_Words = NDArray[np.uint64]

FEW = 1 << 16  # samples that are sorted in a few milliseconds
BLOCK = 1 << 12  # samples of many that are put in order at once: about a millisecond
_ROUNDS = 8
_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def block_size(samples: int) -> int:
    """Return how many samples of an epoch are ordered at once."""
    return samples if samples <= FEW else BLOCK


@lru_cache(maxsize=4)
def block(samples: int, seed: int, epoch: int, number: int) -> Indices:
    """Return part `number` of the order of one epoch: `block_size` samples, or those that are left."""
    if samples <= FEW:
        return shuffle(samples, seed, epoch)
    return permute(np.arange(number * BLOCK, min(samples, (number + 1) * BLOCK)), samples, seed, epoch)


def shuffle(samples: int, seed: int, epoch: int) -> Indices:
    """Return the whole order, by sorting."""
    keys = np.random.Philox(key=np.array([seed & _MASK, epoch], dtype=np.uint64)).random_raw(samples)
    return np.argsort(keys, kind="stable")


def permute(places: Indices, samples: int, seed: int, epoch: int) -> Indices:
    """Return what is at these places of the permutation of range(samples), by the network."""
    start = _mix(_mix(np.array([seed & _MASK], dtype=np.uint64) + _GOLDEN) + np.uint64(epoch))
    keys = _mix(start + _GOLDEN * np.arange(1, _ROUNDS + 1, dtype=np.uint64))  # one for each round
    bits = max(samples - 1, 0).bit_length()
    found = _encipher(places.astype(np.uint64), bits, keys)
    outside = np.flatnonzero(found >= samples)
    while outside.size:
        found[outside] = again = _encipher(found[outside], bits, keys)
        outside = outside[again >= samples]
    return found.astype(np.int64)


def _encipher(words: _Words, bits: int, keys: _Words) -> _Words:
    """Apply a permutation of range(2 ** bits)."""
    right_bits = np.uint64((bits + 1) // 2)
    right_mask, left_mask = np.uint64((1 << (bits + 1) // 2) - 1), np.uint64((1 << bits // 2) - 1)
    left, right = words >> right_bits, words & right_mask
    for first, second in keys.reshape(-1, 2):
        left ^= _mix(right + first) & left_mask
        right ^= _mix(left + second) & right_mask
    return left << right_bits | right


def _mix(words: _Words) -> _Words:
    """Apply SplitMix64's finalizer: each bit of the input changes each bit of the output with probability 1/2."""
    words = (words ^ words >> np.uint64(30)) * _FIRST
    words = (words ^ words >> np.uint64(27)) * _SECOND
    return words ^ words >> np.uint64(31)
