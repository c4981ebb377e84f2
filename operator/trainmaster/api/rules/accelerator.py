"""Rules on spec.workers.accelerator: what TPUs can be asked for."""

from __future__ import annotations

from typing import Any

from trainmaster.api.replicas import TPU
from trainmaster.api.rules.rule import Rule

_SPEC = ("spec",)
_STRATEGIES = ("OneDevice", "Mirrored", "AllReduce")
_CEL_TPU = f"(has(self.workers.accelerator) && self.workers.accelerator == '{TPU}')"


def _on_tpu(spec: Any) -> bool:
    return bool(spec.workers.accelerator == TPU)


def _plain(spec: Any) -> bool:
    """Whether XLA's own way to add up is left to it."""
    options = spec.strategy.all_reduce or spec.strategy.mirrored
    chosen = options is not None and "Native" not in options.to_dict().values()
    return spec.strategy.compression == "None" and not spec.reproducible and not chosen


RULES = (
    Rule(
        name="tpu-type",
        where=_SPEC,
        field="workers.accelerator",
        cel=f"!{_CEL_TPU} || self.strategy.type in {list(_STRATEGIES)}",
        holds=lambda spec: not _on_tpu(spec) or spec.strategy.type in _STRATEGIES,
        message=f"accelerator tpu trains {', '.join(_STRATEGIES)}",
        cure="Choose one of these types, or remove accelerator",
    ),
    Rule(
        name="tpu-plain",
        where=_SPEC,
        field="workers.accelerator",
        cel=f"!{_CEL_TPU} || (self.strategy.compression == 'None' && !self.reproducible"
        " && (!has(self.strategy.allReduce) || self.strategy.allReduce.algorithm == 'Native')"
        " && (!has(self.strategy.mirrored) || self.strategy.mirrored.reduction == 'Native'))",
        holds=lambda spec: not _on_tpu(spec) or _plain(spec),
        message="on TPUs XLA itself adds up, without compression, reproducible or another algorithm than Native",
        cure="Remove these, or remove accelerator",
    ),
)
