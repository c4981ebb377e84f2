"""Keep a script's own learning rates where another job's schedule, which had set that job's rates, is not taken over.

A schedule that has ended may have left a rate near 0. Another schedule, or none, would never come away from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from trainmaster_trainer.schedules import SETTINGS


@contextmanager
def own_rates(things: Mapping[str, Any], taken: Collection[str], kinds: Mapping[str, str]) -> Iterator[None]:
    """Give optimizers that are loaded within their own rates back, if a schedule that is not `taken` had set them.

    `kinds` are the names of the types of the other job's optimizers and schedules. An optimizer of `things` whose
    schedule is taken goes on with the rates that this one had set.
    """
    led = {id(one.optimizer) for name, one in things.items() if name in taken and isinstance(one, LRScheduler)}
    is_left = any(hasattr(lr_scheduler, kind) and name not in taken for name, kind in kinds.items())
    free = [one for one in things.values() if is_left and isinstance(one, Optimizer) and id(one) not in led]
    kept = [[{key: group[key] for key in SETTINGS if key in group} for group in one.param_groups] for one in free]
    yield
    for optimizer, groups in zip(free, kept, strict=True):
        for group, own in zip(optimizer.param_groups, groups, strict=True):
            for key in SETTINGS:
                group.pop(key, None)  # a schedule that is made later would begin with the other job's initial_lr
            group.update(own)
