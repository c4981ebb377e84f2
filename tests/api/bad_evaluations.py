"""Specs that ask for evaluations that cannot be: see bad_specs.py."""

from __future__ import annotations

from typing import Any

from tests.api.changes import bad as _bad

_NO_CHOICE = "Unsupported value"
_AT_LEAST_1 = "should be greater than or equal to 1"
_EVALUATE = "training.evaluateEverySteps"
_EVALUATED: dict[str, Any] = {"training__evaluateEverySteps": 10}
_EARLY = {"metric": "validation_loss", "patience": 3, "mode": "min"}
_BEST = {"metric": "accuracy", "mode": "max"}
_GOSSIP: dict[str, Any] = {"strategy__type": "Gossip"}

EVALUATIONS = (
    _bad("evaluation of a script", "training", {"command": ["true"], "evaluateEverySteps": 5}, "its own", at=_EVALUATE),
    _bad("early stop of gossip", "training.stopEarly", _EARLY, "a model of its own", **_EVALUATED, **_GOSSIP),
    _bad("best of gossip", "checkpoint.best", _BEST, "Remove checkpoint.best", **_EVALUATED, **_GOSSIP),
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
    _bad("best of nothing", "checkpoint.best", _BEST, "Set training.evaluateEverySteps"),
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
