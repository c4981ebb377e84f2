"""Hold the rules on evaluateEverySteps, and on what looks at its figures: stopEarly and checkpoint.best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmaster.api.rules.rule import Rule

_TRAINING = ("spec.training",)
_SPEC = ("spec",)


def _not_gossip(field: str, asked: Callable[[Any], bool]) -> Rule:
    return Rule(
        name=f"{field.partition('.')[2]}-type",
        where=_SPEC,
        field=field,
        cel=f"!has(self.{field}) || self.strategy.type != 'Gossip'",
        holds=lambda spec: not asked(spec) or spec.strategy.type != "Gossip",
        message="under Gossip each worker has a model of its own at a step of its own, which decides nothing for all",
        cure=f"Remove {field}, or choose another strategy.type, such as AllReduce",
    )


RULES = (
    Rule(
        name="evaluate-task",
        where=_SPEC,
        field="training.evaluateEverySteps",
        cel="!has(self.training.evaluateEverySteps) || !has(self.training.command)"
        " || has(self.training.stopEarly) || has(self.checkpoint.best)",
        holds=lambda spec: (
            spec.training.evaluate_every_steps is None
            or spec.training.command is None
            or spec.training.stop_early is not None
            or spec.checkpoint.best is not None
        ),
        message="when a command evaluates is its own affair; evaluateEverySteps says after how many steps"
        " stopEarly and checkpoint.best look at what it reports",
        cure="Remove evaluateEverySteps, or set stopEarly or checkpoint.best",
    ),
    _not_gossip("training.stopEarly", lambda spec: spec.training.stop_early is not None),
    _not_gossip("checkpoint.best", lambda spec: spec.checkpoint.best is not None),
    Rule(
        name="stop-early-evaluates",
        where=_TRAINING,
        field="stopEarly",
        cel="!has(self.stopEarly) || has(self.evaluateEverySteps)",
        holds=lambda training: training.stop_early is None or training.evaluate_every_steps is not None,
        message="stopEarly looks at figures of evaluations, and there are none before the last step",
        cure="Set evaluateEverySteps, for example to 100, or remove stopEarly",
    ),
    Rule(
        name="best-evaluates",
        where=_SPEC,
        field="checkpoint.best",
        cel="!has(self.checkpoint.best) || has(self.training.evaluateEverySteps)",
        holds=lambda spec: spec.checkpoint.best is None or spec.training.evaluate_every_steps is not None,
        message="checkpoint.best is the best of several evaluated steps, and only the last one is evaluated",
        cure="Set training.evaluateEverySteps, for example to 100, or remove checkpoint.best",
    ),
)
