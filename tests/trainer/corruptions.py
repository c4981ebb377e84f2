"""Random harm to checkpoints, for the test of ten thousand and for `bench/corruption.py`.

A checkpoint is held as bytes by file name, so that one read of it is all that a corruption costs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

Files = dict[str, bytes]
Harm = Callable[[Files, Files, random.Random], None]  # what is harmed, the same files of another step, chance
PAGE = 4096


def flip(files: Files, _: Files, chance: random.Random) -> None:
    """One bit of one file."""
    name = _any(files, chance)
    data = bytearray(files[name])
    bit = chance.randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    files[name] = bytes(data)


def zero_page(files: Files, _: Files, chance: random.Random) -> None:
    """A page, or what there is of it, as a file system that lost a block gives it."""
    name = _any(files, chance)
    data = files[name]
    first = chance.randrange(0, len(data), PAGE)
    page = data[first : first + PAGE]
    if any(page):
        files[name] = data[:first] + bytes(len(page)) + data[first + PAGE :]
    else:
        flip(files, _, chance)


def truncate(files: Files, _: Files, chance: random.Random) -> None:
    """The end is missing."""
    name = _any(files, chance)
    files[name] = files[name][: chance.randrange(len(files[name]))]


def lengthen(files: Files, _: Files, chance: random.Random) -> None:
    """Something follows."""
    files[_any(files, chance)] += chance.randbytes(chance.randrange(1, 100))


def mix_steps(files: Files, others: Files, chance: random.Random) -> None:
    """A file of another step, whose names sort likewise."""
    name, other = chance.choice(
        [(one, two) for one, two in zip(sorted(files), sorted(others), strict=True) if files[one] != others[two]]
    )
    files[name] = others[other]


def lose(files: Files, _: Files, chance: random.Random) -> None:
    """A file is not there."""
    del files[_any(files, chance)]


def swap(files: Files, _: Files, chance: random.Random) -> None:
    """Two files have each other's names."""
    one, other = chance.sample(sorted(files), 2)
    files[one], files[other] = files[other], files[one]


def scramble(files: Files, _: Files, chance: random.Random) -> None:
    """Some bytes are others."""
    name = _any(files, chance)
    data = bytearray(files[name])
    first = chance.randrange(len(data))
    part = chance.randbytes(min(chance.randrange(1, 65), len(data) - first))
    data[first : first + len(part)] = part if data[first : first + len(part)] != part else bytes(len(part))
    files[name] = bytes(data)


HARMS: tuple[Harm, ...] = (flip, flip, flip, zero_page, truncate, lengthen, mix_steps, lose, swap, scramble)


def corrupted(good: Files, others: Files, chance: random.Random) -> tuple[str, Files]:
    """A harm's name, and the files after it: different from before, for sure."""
    while True:
        harm = chance.choice(HARMS)
        files = dict(good)
        harm(files, others, chance)
        if files != good:
            return harm.__name__, files


def load(folder: Path) -> Files:
    """A checkpoint as bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def store(files: Files, before: Files, folder: Path) -> None:
    """Make a folder that holds `before` hold `files`."""
    for name in before.keys() - files.keys():
        (folder / name).unlink()
    for name, data in files.items():
        if before.get(name) != data:
            (folder / name).write_bytes(data)


def _any(files: Files, chance: random.Random) -> str:
    return chance.choice(sorted(files))
