"""Choose after how many steps a snapshot is taken, and after how many it is passed on, so that both cost at most 3 %.

A snapshot that is passed on to the next replica (`neighbours.py`, `slot_copies.py`) waits for another rank. So a rank
takes its own more often than it passes one on, where a third slot keeps the one that was passed on last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from trainmaster_trainer.checkpoint.passing import Passing

COST = 0.03  # of the training's time
_OF_PASSING = 0.01  # of the training's time, at least, which snapshots leave for passing them on
_SURELY = 0.7  # of that, before snapshots become more frequent
FREE_SECONDS = 0.0005  # of a task: a snapshot that takes less is taken after every step, however short the steps are


def cost_of(lately: Iterable[float]) -> float:
    """Return what a snapshot costs, from what the last ones took: a quarter of them took less.

    What else the machine does only adds to it, for some seconds to most of them; a cost that is overestimated for one
    of them makes snapshots more seldom for several.
    """
    costs = sorted(lately)
    return costs[len(costs) // 4]


def interval(now: int, training: float, snapshot: float, free: float, cost: float = COST) -> int:
    """Return after how many steps of `training` seconds each to take a snapshot, which takes so many seconds itself.

    `cost`: the share of the time that this may take.

    Half as often or twice as often as now, at least, and sooner the former: a figure that trembles changes nothing.
    """
    share = 0.0 if snapshot <= free else snapshot / training
    seldom, often = max(1, math.ceil(share / cost)), max(1, math.ceil(share / (_SURELY * cost)))
    if seldom >= 2 * now:
        return seldom
    return often if 2 * often <= now else now


def separate(every: int, passing: Passing, training: float, snapshot: float, free: float) -> tuple[int, int]:
    """Return after how many steps to take a snapshot, and after how many to pass one on; the former come first."""
    own = interval(every, training, snapshot, free, COST - _OF_PASSING)
    left = max(COST - snapshot / own / training, _OF_PASSING)
    return own, interval(passing.every, training, passing.seconds, 0.0, left)
