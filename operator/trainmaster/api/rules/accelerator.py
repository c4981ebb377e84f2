"""Hold the rules on spec.workers.accelerator: what TPUs can do."""

from __future__ import annotations

from typing import Any

from trainmaster.api.roles import TPU
from trainmaster.api.rules.rule import Rule
from trainmaster.api.rules.strategy_rules import CEL_PLAIN_SUMS, plain_sums
from trainmaster.wire.strategies import WHOLE_MODELS

_SPEC = ("spec",)
CEL_TPU = f"(has(self.workers.accelerator) && self.workers.accelerator == '{TPU}')"


def on_tpu(spec: Any) -> bool:
    """Return whether the workers have TPUs."""
    return bool(spec.workers.accelerator == TPU)


RULES = (
    Rule(
        name="tpu-type",
        where=_SPEC,
        field="workers.accelerator",
        cel=f"!{CEL_TPU} || self.strategy.type in {list(WHOLE_MODELS)}",
        holds=lambda spec: not on_tpu(spec) or spec.strategy.type in WHOLE_MODELS,
        message=f"accelerator tpu trains {', '.join(WHOLE_MODELS)}",
        cure="Choose one of these types, or remove accelerator",
    ),
    Rule(
        name="tpu-plain",
        where=_SPEC,
        field="workers.accelerator",
        cel=f"!{CEL_TPU} || (!self.reproducible && {CEL_PLAIN_SUMS})",
        holds=lambda spec: not on_tpu(spec) or (not spec.reproducible and plain_sums(spec)),
        message="on TPUs XLA itself adds up, without compression, reproducible or another algorithm than Native",
        cure="Remove these, or remove accelerator",
    ),
    Rule(
        name="tpu-servers",
        where=("spec.parameterServers",),
        field="accelerator",
        cel=f"!has(self.accelerator) || self.accelerator != '{TPU}'",
        holds=lambda servers: servers.accelerator != TPU,
        message="parameter servers do not compute on TPUs",
        cure="Remove accelerator",
    ),
)
