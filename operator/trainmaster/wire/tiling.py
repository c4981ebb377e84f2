"""Check whether boxes fill one larger box without gap or overlap: pieces of a tensor, as a manifest records them."""

from __future__ import annotations

import itertools
from typing import Dict, Sequence, Tuple

Box = Tuple[Tuple[int, ...], Tuple[int, ...]]  # where it begins in each dimension, and how far it goes
MOST_CUT = 4  # dimensions: no mesh splits a tensor in more


def whole_of(boxes: Sequence[Box]) -> Tuple[int, ...]:
    """Return the extent of the smallest box from the origin that holds all of these."""
    return tuple(max(ends) for ends in zip(*[tuple(map(sum, zip(*box))) for box in boxes]))


def make_one(boxes: Sequence[Box]) -> bool:
    """Return whether the boxes fill the whole without gap or overlap; False where more than MOST_CUT axes are cut.

    Each box is reduced to its corners, signed by the parity of their upper ends. The boxes fill the whole exactly if
    their corners sum up to those of the whole. So the time grows with the number of boxes, not of pairs.
    """
    whole = whole_of(boxes)
    if len(boxes) == 1 and not any(boxes[0][0]):
        return True
    cut = [
        axis
        for axis, length in enumerate(whole)
        if any(offset[axis] != 0 or shape[axis] != length for offset, shape in boxes)
    ]
    if len(cut) > MOST_CUT:
        return False
    corners: Dict[Tuple[int, ...], int] = {}
    for (offset, shape), sign in [*((box, 1) for box in boxes), (((0,) * len(whole), whole), -1)]:
        ends = [(offset[axis], offset[axis] + shape[axis]) for axis in cut]
        for choice in itertools.product((0, 1), repeat=len(cut)) if 0 not in shape else ():
            corner = tuple(end[upper] for end, upper in zip(ends, choice))
            corners[corner] = corners.get(corner, 0) + (-sign if sum(choice) % 2 else sign)
    return not any(corners.values())
