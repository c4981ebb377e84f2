"""Hold the rules on compile, activationCheckpointing and ema: which strategies can carry them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmaster.api.rules.accelerator import CEL_TPU, on_tpu
from trainmaster.api.rules.rule import Rule
from trainmaster.wire import strategies

_COMPILES = ("OneDevice", "Mirrored", "AllReduce", "LocalSGD")
_RECOMPUTES = (*_COMPILES, "FullySharded")
_AVERAGES = tuple(
    name for name, traits in strategies.STRATEGIES.items() if not traits.own_steps and name != "CentralStorage"
)
_CEL_COMPILES = "(has(self.training.compile) && self.training.compile)"
_CEL_RECOMPUTES = "(has(self.training.activationCheckpointing) && self.training.activationCheckpointing)"


def _for_tasks(field: str, cel: str, asked: Callable[[Any], bool], cure: str) -> Rule:
    return Rule(
        name=f"{field}-task",
        where=("spec.training",),
        field=field,
        cel=f"!({cel}) || !has(self.command)",
        holds=lambda training: not asked(training) or training.command is None,
        message=f"{field} is for a task; what a command does with its model is its own affair",
        cure=f"Remove {field}, and {cure} in the script",
    )


def _for_types(field: str, cel: str, asked: Callable[[Any], bool], types: tuple[str, ...]) -> Rule:
    return Rule(
        name=f"{field}-type",
        where=("spec",),
        field=f"training.{field}",
        cel=f"!({cel}) || (self.strategy.type in {list(types)} && !{CEL_TPU})",
        holds=lambda spec: not asked(spec.training) or (spec.strategy.type in types and not on_tpu(spec)),
        message=f"{field} works under {', '.join(types)}, and not on TPUs",
        cure=f"Remove {field}, or choose one of these for strategy.type",
    )


def _compiles(training: Any) -> bool:
    return bool(training.compile)


def _recomputes(training: Any) -> bool:
    return bool(training.activation_checkpointing)


def _averages(training: Any) -> bool:
    return training.ema is not None


RULES = (
    _for_tasks("compile", "(has(self.compile) && self.compile)", _compiles, "call torch.compile"),
    _for_tasks(
        "activationCheckpointing",
        "(has(self.activationCheckpointing) && self.activationCheckpointing)",
        _recomputes,
        "use torch.utils.checkpoint",
    ),
    _for_tasks("ema", "has(self.ema)", _averages, "use torch.optim.swa_utils.AveragedModel"),
    _for_types("compile", _CEL_COMPILES, _compiles, _COMPILES),
    _for_types("activationCheckpointing", _CEL_RECOMPUTES, _recomputes, _RECOMPUTES),
    _for_types("ema", "has(self.training.ema)", _averages, _AVERAGES),
    Rule(
        name="compile-recompute",
        where=("spec.training",),
        field="compile",
        cel="!(has(self.compile) && self.compile && has(self.activationCheckpointing) && self.activationCheckpointing)",
        holds=lambda training: not (training.compile and training.activation_checkpointing),
        message="compile and activationCheckpointing do not go together:"
        " a compiled model decides itself what it keeps for the backward pass",
        cure="Remove one of them",
    ),
    Rule(
        name="compile-reproducible",
        where=("spec",),
        field="training.compile",
        cel=f"!({_CEL_COMPILES} || {_CEL_RECOMPUTES}) || !self.reproducible",
        holds=lambda spec: not (_compiles(spec.training) or _recomputes(spec.training)) or not spec.reproducible,
        message="reproducible computes each virtual rank by itself, which is not tried with a compiled model or with"
        " recomputed activations",
        cure="Remove compile and activationCheckpointing, or reproducible",
    ),
    Rule(
        name="ema-decay",  # no `minimum`: the API server rounds that off where the value is a whole number
        where=("spec.training.ema",),
        field="decay",
        cel="self.decay > 0.0 && self.decay < 1.0",
        holds=lambda ema: 0 < ema.decay < 1,
        message="decay says how much of the average stays after a step, so it is between 0 and 1",
        cure="Write for example 0.999",
    ),
)
