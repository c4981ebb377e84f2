"""Specs that ask of a model what its strategy cannot carry: see bad_specs.py."""

from __future__ import annotations

from typing import Any

from tests.api.changes import bad as _bad

_SCRIPT: dict[str, Any] = {"command": ["true"]}
_RECOMPUTE, _DECAY = "training.activationCheckpointing", "training.ema.decay"

MODELS = (
    _bad("compiled script", "training", {**_SCRIPT, "compile": True}, "call torch.compile", at="training.compile"),
    _bad(
        "recomputed script",
        "training",
        {**_SCRIPT, "activationCheckpointing": True},
        "torch.utils.checkpoint",
        at=_RECOMPUTE,
    ),
    _bad("average of a script", "training", {**_SCRIPT, "ema": {"decay": 0.9}}, "AveragedModel", at="training.ema"),
    _bad("compiled stages", "training.compile", True, "works under OneDevice", strategy__type="Pipeline"),
    _bad("recomputed stages", _RECOMPUTE, True, "FullySharded, and not on TPUs", strategy__type="Pipeline"),
    _bad("average of members", "training.ema", {"decay": 0.9}, "works under OneDevice", strategy__type="Gossip"),
    _bad(
        "compiled and recomputed",
        "training.compile",
        True,
        "do not go together",
        training__activationCheckpointing=True,
    ),
    _bad("compiled for every number of ranks", "training.compile", True, "or reproducible", reproducible=True),
    _bad("average that stays", _DECAY, 1, "Write for example 0.999"),
    _bad("average of the last step", _DECAY, 0, "Write for example 0.999"),
    _bad("negative average", _DECAY, -0.5, "at least 0", "should be greater than or equal to 0"),
)
