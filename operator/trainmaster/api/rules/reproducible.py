"""Rules on spec.reproducible: the same bits at any number of ranks, which not every way to train can promise."""

from __future__ import annotations

from typing import Any

from trainmaster.api.rules.rule import Figure, Rule
from trainmaster.api.rules.strategy import CEL_RANKS, ranks

_SPEC = ("spec",)
_STRATEGIES = ("OneDevice", "Mirrored", "AllReduce")
_MOST = 8  # the virtual ranks of trainmaster_trainer.strategies.virtual_ranks


def _chooses(spec: Any) -> bool:
    """Whether the spec asks for sums in another order than the fixed one."""
    options = spec.strategy.all_reduce or spec.strategy.mirrored
    return spec.strategy.compression != "None" or bool(options and "Native" not in options.to_dict().values())


RULES = (
    Rule(
        name="reproducible-type",
        where=_SPEC,
        field="reproducible",
        cel=f"!self.reproducible || self.strategy.type in {list(_STRATEGIES)}",
        holds=lambda spec: not spec.reproducible or spec.strategy.type in _STRATEGIES,
        message=f"only {', '.join(_STRATEGIES)} can give the same bits at any number of ranks",
        cure="Set reproducible to false, or choose one of these types",
    ),
    Rule(
        name="reproducible-order",
        where=_SPEC,
        field="reproducible",
        cel="!self.reproducible || (self.strategy.compression == 'None'"
        " && (!has(self.strategy.allReduce) || self.strategy.allReduce.algorithm == 'Native')"
        " && (!has(self.strategy.mirrored) || self.strategy.mirrored.reduction == 'Native'))",
        holds=lambda spec: not spec.reproducible or not _chooses(spec),
        message="reproducible sums have an order of their own, without compression or another algorithm than Native",
        cure="Remove compression, algorithm and reduction, or set reproducible to false",
    ),
    Rule(
        name="reproducible-task",
        where=_SPEC,
        field="reproducible",
        cel="!self.reproducible || has(self.training.task)",
        holds=lambda spec: not spec.reproducible or spec.training.task is not None,
        message="what a command of your own computes is in nobody else's hands",
        cure="Set reproducible to false, or train a task",
    ),
    Rule(
        name="reproducible-ranks",
        where=_SPEC,
        field="reproducible",
        cel=f"!self.reproducible || {CEL_RANKS} <= {_MOST}",
        holds=lambda spec: not spec.reproducible or ranks(spec) <= _MOST,
        message=f"reproducible is for {_MOST} ranks at most, and workers.replicas times workers.gpus is {{ranks}}",
        cure="Lower replicas or gpus, or set reproducible to false",
        figures={"ranks": Figure(CEL_RANKS, ranks)},
    ),
    Rule(
        name="reproducible-batch",
        where=_SPEC,
        field="training.globalBatchSize",
        cel=f"!self.reproducible || !has(self.training.globalBatchSize) || self.training.globalBatchSize >= {_MOST}",
        holds=lambda spec: (
            not spec.reproducible or spec.training.global_batch_size is None or spec.training.global_batch_size >= _MOST
        ),
        message=f"reproducible training cuts every batch into {_MOST} parts, and each needs a sample",
        cure=f"Raise globalBatchSize to {_MOST} at least, or set reproducible to false",
    ),
)
