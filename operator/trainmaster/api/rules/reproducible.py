"""Hold the rules on spec.reproducible: not every strategy can give the same bits at any number of ranks."""

from __future__ import annotations

from trainmaster.api.rules.rule import Figure, Rule
from trainmaster.api.rules.strategy_rules import (
    CEL_MOST_RANKS,
    CEL_PLAIN_SUMS,
    CEL_RANKS,
    most_ranks,
    plain_sums,
    ranks,
)
from trainmaster.wire.strategies import WHOLE_MODELS

_SPEC = ("spec",)
_MOST = 8  # the virtual ranks of trainmaster_trainer.strategies.virtual_ranks

RULES = (
    Rule(
        name="reproducible-type",
        where=_SPEC,
        field="reproducible",
        cel=f"!self.reproducible || self.strategy.type in {list(WHOLE_MODELS)}",
        holds=lambda spec: not spec.reproducible or spec.strategy.type in WHOLE_MODELS,
        message=f"only {', '.join(WHOLE_MODELS)} can give the same bits at any number of ranks",
        cure="Set reproducible to false, or choose one of these types",
    ),
    Rule(
        name="reproducible-order",
        where=_SPEC,
        field="reproducible",
        cel=f"!self.reproducible || {CEL_PLAIN_SUMS}",
        holds=lambda spec: not spec.reproducible or plain_sums(spec),
        message="reproducible sums have an order of their own, without compression or another algorithm than Native",
        cure="Remove compression, algorithm and reduction, or set reproducible to false",
    ),
    Rule(
        name="reproducible-task",
        where=_SPEC,
        field="reproducible",
        cel="!self.reproducible || has(self.training.task)",
        holds=lambda spec: not spec.reproducible or spec.training.task is not None,
        message="Trainmaster cannot fix the order in which a command of your own computes",
        cure="Set reproducible to false, or train a task",
    ),
    Rule(
        name="reproducible-ranks",
        where=_SPEC,
        field="reproducible",
        cel=f"!self.reproducible || {CEL_RANKS} <= {_MOST}",
        holds=lambda spec: not spec.reproducible or ranks(spec) <= _MOST,
        message=f"reproducible is for {_MOST} ranks at most, and workers.replicas times workers.gpus"
        " (1 where gpus is 0) is {ranks}",
        cure="Lower replicas or gpus, or set reproducible to false",
        figures={"ranks": Figure(CEL_RANKS, ranks)},
    ),
    Rule(
        name="reproducible-most-ranks",
        where=_SPEC,
        field="elasticity.maxReplicas",
        cel=f"!self.reproducible || !has(self.elasticity) || {CEL_RANKS} > {_MOST} || {CEL_MOST_RANKS} <= {_MOST}",
        holds=lambda spec: (
            not spec.reproducible or spec.elasticity is None or ranks(spec) > _MOST or most_ranks(spec) <= _MOST
        ),
        message=f"reproducible is for {_MOST} ranks at most, and elasticity allows for {{ranks}}",
        cure="Lower maxReplicas, or set reproducible to false",
        figures={"ranks": Figure(CEL_MOST_RANKS, most_ranks)},
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
