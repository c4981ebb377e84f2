"""Specs that ask for evaluations that cannot be: see bad_specs.py."""

from __future__ import annotations

from typing import Any

from tests.api.changes import bad as _bad

_NO_CHOICE = "Unsupported value"
_AT_LEAST_1 = "should be greater than or equal to 1"
_EVALUATE = "training.evaluateEverySteps"
_EVALUATED: dict[str, Any] = {"training__evaluateEverySteps": 10}
_EARLY = {"metric": "validation_loss", "patience": 3, "mode": "min"}

EVALUATIONS = (
    _bad("evaluation of a script", "training", {"command": ["true"], "evaluateEverySteps": 5}, "its own", at=_EVALUATE),
    _bad("evaluation of gossip", _EVALUATE, 5, "a model of its own", strategy__type="Gossip"),
    _bad("never evaluated", _EVALUATE, 0, "Write 1 or more", _AT_LEAST_1),
    _bad("stop by nothing", "training.stopEarly", _EARLY, "Set evaluateEverySteps"),
    _bad(
        "impatient",
        "training.stopEarly",
        {**_EARLY, "patience": 0},
        "Write 1 or more",
        _AT_LEAST_1,
        at="training.stopEarly.patience",
        **_EVALUATED,
    ),
    _bad(
        "best of nothing", "checkpoint.best", {"metric": "accuracy", "mode": "max"}, "Set training.evaluateEverySteps"
    ),
    _bad(
        "best of no mode",
        "checkpoint.best",
        {"metric": "a", "mode": "Max"},
        "Did you mean max",
        _NO_CHOICE,
        at="checkpoint.best.mode",
        **_EVALUATED,
    ),
)
