"""Hold the rules on spec.training.precision, maxGradientNorm and microBatchSize: which strategies support them."""

from __future__ import annotations

from typing import Any

from trainmaster.api.rules.accelerator import CEL_TPU, on_tpu
from trainmaster.api.rules.rule import Rule
from trainmaster.api.rules.strategy_rules import OWN_EXCHANGE
from trainmaster.wire import strategies

_TRAINING = ("spec.training",)
_SPEC = ("spec",)
_OWN_STEPS = strategies.where(lambda traits: traits.own_steps)
_CEL_SYNC = "(has(self.strategy.parameterServer) && self.strategy.parameterServer.update == 'Sync')"
_CEL_SERVERS = "(has(self.parameterServers) ? self.parameterServers.replicas : 1)"

_CEL_PIPELINE = (
    "(self.strategy.type == 'Pipeline'"
    " || (self.strategy.type == 'Mesh' && has(self.strategy.mesh) && self.strategy.mesh.pipeline > 1))"
)


def _has_stages(spec: Any) -> bool:
    strategy = spec.strategy
    if strategy.type == "Mesh":
        return bool(strategy.mesh and strategy.mesh.pipeline > 1)
    return bool(strategy.type == "Pipeline")


def _several_servers(spec: Any) -> bool:
    options, servers = spec.strategy.parameter_server, spec.parameter_servers
    return bool(options is not None and options.update == "Sync" and servers is not None and servers.replicas > 1)


RULES = (
    Rule(
        name="precision-task",
        where=_TRAINING,
        field="precision",
        cel="self.precision == 'FP32' || !has(self.command)",
        holds=lambda training: training.precision == "FP32" or training.command is None,
        message="precision is for a task; what a command computes in is its own affair",
        cure="Remove precision, and use torch.autocast in the script",
    ),
    Rule(
        name="norm-task",
        where=_TRAINING,
        field="maxGradientNorm",
        cel="!has(self.maxGradientNorm) || !has(self.command)",
        holds=lambda training: training.max_gradient_norm is None or training.command is None,
        message="maxGradientNorm is for a task; a command's gradients are its own affair",
        cure="Remove maxGradientNorm, and use torch.nn.utils.clip_grad_norm_ in the script",
    ),
    Rule(
        name="norm-positive",  # no `minimum`: the API server rounds that off where the value is a whole number
        where=_TRAINING,
        field="maxGradientNorm",
        cel="!has(self.maxGradientNorm) || self.maxGradientNorm != 0.0",
        holds=lambda training: training.max_gradient_norm is None or training.max_gradient_norm != 0,
        message="maxGradientNorm is 0, and a gradient without length trains nothing",
        cure="Write a number above 0, for example 1.0, or remove it",
    ),
    Rule(
        name="parts-task",
        where=_TRAINING,
        field="microBatchSize",
        cel="!has(self.microBatchSize) || !has(self.command)",
        holds=lambda training: training.micro_batch_size is None or training.command is None,
        message="microBatchSize is for a task; how a command cuts its batches is its own affair",
        cure="Remove microBatchSize",
    ),
    Rule(
        name="parts-pipeline",
        where=_SPEC,
        field="training.microBatchSize",
        cel=f"!has(self.training.microBatchSize) || !{_CEL_PIPELINE}",
        holds=lambda spec: spec.training.micro_batch_size is None or not _has_stages(spec),
        message="microBatchSize is for ranks that compute a share of the batch by themselves,"
        " and a pipeline's stages pass micro-batches on to one another",
        cure="Remove microBatchSize; Pipeline has strategy.pipeline.microBatches",
    ),
    Rule(
        name="parts-tpu",
        where=_SPEC,
        field="training.microBatchSize",
        cel=f"!has(self.training.microBatchSize) || !{CEL_TPU}",
        holds=lambda spec: spec.training.micro_batch_size is None or not on_tpu(spec),
        message="on TPUs the whole share of a batch is computed at once",
        cure="Remove microBatchSize, and use more workers or a smaller globalBatchSize",
    ),
    Rule(
        name="fp16-type",
        where=_SPEC,
        field="training.precision",
        cel=f"self.training.precision != 'FP16' || !(self.strategy.type in {list(_OWN_STEPS)})",
        holds=lambda spec: spec.training.precision != "FP16" or spec.strategy.type not in _OWN_STEPS,
        message="precision FP16 has one loss scale for all ranks,"
        f" and under {', '.join(_OWN_STEPS)} each rank takes steps of its own",
        cure="Set precision to BF16, which needs no loss scale, or choose another strategy.type",
    ),
    Rule(
        name="fp16-compression",
        where=_SPEC,
        field="training.precision",
        cel=f"self.training.precision != 'FP16' || !(self.strategy.compression in {list(OWN_EXCHANGE)})",
        holds=lambda spec: spec.training.precision != "FP16" or spec.strategy.compression not in OWN_EXCHANGE,
        message="precision FP16 finds its loss scale by gradients that overflow,"
        f" which compression {', '.join(OWN_EXCHANGE)} cannot send",
        cure="Set precision or compression to BF16",
    ),
    Rule(
        name="fp16-tpu",
        where=_SPEC,
        field="training.precision",
        cel=f"self.training.precision != 'FP16' || !{CEL_TPU}",
        holds=lambda spec: spec.training.precision != "FP16" or not on_tpu(spec),
        message="TPUs compute in BF16, not in FP16",
        cure="Set precision to BF16",
    ),
    Rule(
        name="norm-servers",
        where=_SPEC,
        field="training.maxGradientNorm",
        cel=f"!has(self.training.maxGradientNorm) || !{_CEL_SYNC} || {_CEL_SERVERS} <= 1",
        holds=lambda spec: spec.training.max_gradient_norm is None or not _several_servers(spec),
        message="maxGradientNorm looks at a gradient as a whole,"
        " and with update Sync each of several parameter servers has a part of it",
        cure="Set parameterServers.replicas to 1, or update to Async, or choose AllReduce",
    ),
)
