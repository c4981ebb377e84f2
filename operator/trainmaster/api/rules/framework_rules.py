"""Hold the rules on spec.training.framework: which scripts and strategies it goes with."""

from __future__ import annotations

from trainmaster.api.roles import TPU
from trainmaster.api.rules.accelerator import CEL_TPU, on_tpu
from trainmaster.api.rules.rule import Rule
from trainmaster.wire.frameworks import FRAMEWORKS, TORCH

_SPEC = ("spec",)
_FIELD = "training.framework"
_CHIEF_AND_WORKER = 2
_CEL_TORCH = f"self.training.framework == '{TORCH}'"


def _strategies(framework: str) -> Rule:
    """Return the rule on the strategies that scripts of this framework can follow."""
    possible = FRAMEWORKS[framework].strategies
    return Rule(
        name=f"{framework.lower()}-strategies",
        where=_SPEC,
        field=_FIELD,
        cel=f"self.training.framework != '{framework}' || self.strategy.type in {list(possible)}",
        holds=lambda spec: spec.training.framework != framework or spec.strategy.type in possible,
        message=f"scripts of {framework} train under strategy {', '.join(possible)}",
        cure="Choose one of these types, or another framework",
    )


RULES = (
    Rule(
        name="framework-with-command",
        where=("spec.training",),
        field="framework",
        cel=f"self.framework == '{TORCH}' || has(self.command)",
        holds=lambda training: training.framework == TORCH or training.command is not None,
        message="framework says what a command is written for, and there is none: tasks are torch's",
        cure="Remove framework, or set command in place of task",
    ),
    Rule(
        name="framework-on-tpu",
        where=_SPEC,
        field=_FIELD,
        cel=f"!{CEL_TPU} || {_CEL_TORCH}",
        holds=lambda spec: not on_tpu(spec) or spec.training.framework == TORCH,
        message=f"accelerator {TPU} has been built for {TORCH} only",
        cure="Remove accelerator, or framework",
    ),
    Rule(
        name="chief-and-workers",
        where=_SPEC,
        field="workers.replicas",
        cel="self.training.framework != 'TensorFlow' || self.strategy.type != 'ParameterServer' || self.suspend"
        f" || self.workers.replicas >= {_CHIEF_AND_WORKER}",
        holds=lambda spec: (
            (spec.training.framework, spec.strategy.type) != ("TensorFlow", "ParameterServer")
            or spec.suspend
            or spec.workers.replicas >= _CHIEF_AND_WORKER
        ),
        message="the first worker is TensorFlow's chief, which does not compute, and there is no other",
        cure="Set workers.replicas to 2 at least",
    ),
    *(_strategies(framework) for framework in FRAMEWORKS if framework != TORCH),
)
