"""Specs whose length of training, or who makes its samples, cannot be: see bad_specs.py."""

from __future__ import annotations

from tests.api.changes import GONE
from tests.api.changes import bad as _bad

_AT_LEAST_1 = "should be greater than or equal to 1"
_READERS = "training.dataWorkers"

LENGTHS = (
    _bad("steps and epochs", "training.epochs", 3, "Remove one of them"),
    _bad("no epoch at all", "training.epochs", 0, "at least 1", _AT_LEAST_1, training__steps=GONE),
    _bad("epochs of a script", "training", {"command": ["a"], "epochs": 3}, "a word of command", at="training.epochs"),
    _bad(
        "epochs of servers",
        "training.epochs",
        3,
        "Set steps in place",
        training__steps=GONE,
        strategy__type="ParameterServer",
    ),
    _bad("data workers of a script", "training", {"command": ["true"], "dataWorkers": 2}, "num_workers", at=_READERS),
    _bad("ahead of nothing", "training.prefetch", 4, "set dataWorkers to 1 at least", training__dataWorkers=0),
    _bad("too many data workers", _READERS, 65, "Write 64 or less", "less than or equal to 64"),
)
