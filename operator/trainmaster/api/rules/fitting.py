"""Hold the rules between spec.strategy and spec.training: options that this training would never or could never use."""

from __future__ import annotations

from typing import Any

from trainmaster.api.rules.rule import Figure, Rule

_SPEC = ("spec",)
_STRATEGY = ("spec.strategy",)


def _every(spec: Any) -> int:
    return int(spec.strategy.local_sgd.every)


RULES = (
    Rule(
        name="compression-servers",
        where=_STRATEGY,
        field="compression",
        cel="self.type != 'ParameterServer' || self.compression != 'PowerSGD'",
        holds=lambda strategy: strategy.type != "ParameterServer" or strategy.compression != "PowerSGD",
        message="compression PowerSGD is worked out by all workers together, and those of ParameterServer push alone",
        cure="Set compression to BF16, INT8 or TopK",
    ),
    Rule(
        name="compression-task",
        where=_SPEC,
        field="strategy.compression",
        cel="self.strategy.compression == 'None' || !has(self.training.command)",
        holds=lambda spec: spec.strategy.compression == "None" or spec.training.command is None,
        message="compression is for tasks; Trainmaster has no part in what a command of your own sends",
        cure="Remove compression and compress in the script, or train a task",
    ),
    Rule(
        name="local-sgd-meets",
        where=_SPEC,
        field="strategy.localSGD.every",
        cel="!has(self.strategy.localSGD) || !has(self.training.steps)"
        " || self.strategy.localSGD.every <= self.training.steps",
        holds=lambda spec: (
            spec.strategy.local_sgd is None or spec.training.steps is None or _every(spec) <= spec.training.steps
        ),
        message="strategy.localSGD.every is {every}, but training ends after {steps} steps:"
        " the workers would never meet",
        cure="Lower every to {steps} at most, or raise training.steps",
        figures={
            "every": Figure("self.strategy.localSGD.every", _every),
            "steps": Figure("self.training.steps", lambda spec: int(spec.training.steps)),
        },
    ),
    Rule(
        name="resume-before-end",
        where=_SPEC,
        field="checkpoint.resumeFrom.step",
        cel="!has(self.checkpoint.resumeFrom) || !has(self.checkpoint.resumeFrom.step) || !has(self.training.steps)"
        " || self.checkpoint.resumeFrom.step < self.training.steps",
        holds=lambda spec: (
            spec.checkpoint.resume_from is None
            or spec.checkpoint.resume_from.step is None
            or spec.training.steps is None
            or spec.checkpoint.resume_from.step < spec.training.steps
        ),
        message="checkpoint.resumeFrom.step is {step}, and training ends at step {steps}: nothing is left to train",
        cure="Raise training.steps above {step}, or resume from an earlier step",
        figures={
            "step": Figure("self.checkpoint.resumeFrom.step", lambda spec: int(spec.checkpoint.resume_from.step)),
            "steps": Figure("self.training.steps", lambda spec: int(spec.training.steps)),
        },
    ),
)
