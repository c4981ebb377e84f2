"""Hold the rules on spec.strategy, and between it and the number of workers."""

from __future__ import annotations

from typing import Any

from trainmaster.api.rules.rule import Figure, Rule, member
from trainmaster.api.strategy_spec import StrategySpec
from trainmaster.wire import strategies
from trainmaster.wire.frameworks import ONE_PROCESS

_STRATEGY = ("spec.strategy",)
_SPEC = ("spec",)

_ONE_MACHINE = strategies.where(lambda traits: traits.one_machine)
_MANY = 2
_MANY_RANKS = strategies.where(lambda traits: traits.least_ranks == _MANY)
_COMPRESSES = strategies.where(lambda traits: traits.compresses)
OWN_EXCHANGE = ("INT8", "PowerSGD", "TopK")
_ONE_COPY = strategies.where(lambda traits: not traits.shares_batch)

CEL_RANKS_EACH = (
    "(self.workers.gpus > 0 && !(has(self.workers.accelerator) && self.workers.accelerator == 'tpu')"
    f" && !(self.training.framework in {list(ONE_PROCESS)}) ? self.workers.gpus : 1)"
)
CEL_RANKS = f"(self.workers.replicas * {CEL_RANKS_EACH})"
CEL_MOST_RANKS = f"(self.elasticity.maxReplicas * {CEL_RANKS_EACH})"
_MESH = (
    "(self.strategy.mesh.data * self.strategy.mesh.sharded * self.strategy.mesh.pipeline * self.strategy.mesh.tensor)"
)
_COPY = "(self.strategy.mesh.sharded * self.strategy.mesh.pipeline * self.strategy.mesh.tensor)"
_SHARES = (
    f"(self.strategy.type in {list(_ONE_COPY)} ? 1 : (self.strategy.type == 'Mesh' ? "
    f"(has(self.strategy.mesh) ? self.strategy.mesh.data * self.strategy.mesh.sharded : 1) : {CEL_RANKS}))"
)


# True where nobody chose another order of sums than torch's own.
CEL_PLAIN_SUMS = (
    "(self.strategy.compression == 'None'"
    " && (!has(self.strategy.allReduce) || self.strategy.allReduce.algorithm == 'Native')"
    " && (!has(self.strategy.mirrored) || self.strategy.mirrored.reduction == 'Native'))"
)


def plain_sums(spec: Any) -> bool:
    """Return whether there is no compression, and no algorithm or reduction but Native."""
    options = spec.strategy.all_reduce or spec.strategy.mirrored
    return spec.strategy.compression == "None" and (options is None or "Native" in options.to_dict().values())


def ranks(spec: Any) -> int:
    """Return the number of ranks of all workers."""
    return int(spec.worker_ranks)


def most_ranks(spec: Any) -> int:
    """Return the number of ranks of all workers that elasticity allows."""
    return int(spec.elasticity.max_replicas * spec.ranks_each)


def _mesh(spec: Any) -> int:
    return int(spec.strategy.mesh.size)


def _copy(spec: Any) -> int:
    """Return the number of ranks that one copy of the model needs."""
    return _mesh(spec) // int(spec.strategy.mesh.data)


def _mesh_fits(spec: Any) -> bool:
    return spec.strategy.type != "Mesh" or not spec.strategy.mesh or _mesh(spec) == ranks(spec)


def shares(spec: Any) -> int:
    """Return into how many parts a global batch is cut."""
    if spec.strategy.type in _ONE_COPY:
        return 1
    if spec.strategy.type == "Mesh":
        mesh = spec.strategy.mesh
        return int(mesh.data * mesh.sharded) if mesh else 1
    return ranks(spec)


def _batch(spec: Any) -> int:
    return int(spec.training.global_batch_size)


def _native_only(attribute: str, choice: str, strategy_type: str) -> Rule:
    """Return a rule against an algorithm beside a compression that has an exchange of its own: it would do nothing."""
    alias = str(StrategySpec.model_fields[attribute].alias)

    def holds(strategy: Any) -> bool:
        options = member(strategy, alias)
        return strategy.compression not in OWN_EXCHANGE or options is None or getattr(options, choice) == "Native"

    return Rule(
        name=f"compression-{choice}",
        where=_STRATEGY,
        field="compression",
        cel=f"!(self.compression in {list(OWN_EXCHANGE)}) || !has(self.{alias}) || self.{alias}.{choice} == 'Native'",
        holds=holds,
        message=f"compression {', '.join(OWN_EXCHANGE)} bring an exchange of their own"
        f" and go with {strategy_type}'s {choice} Native only",
        cure=f"Set compression to BF16, or {alias}.{choice} to Native",
    )


def _of_type(strategy_type: str, attribute: str) -> Rule:
    """Return a rule against options of another strategy type, which a user may have left when changing the type."""
    alias = str(StrategySpec.model_fields[attribute].alias)

    def holds(strategy: Any) -> bool:
        return member(strategy, alias) is None or strategy.type == strategy_type

    return Rule(
        name=f"{alias}-options",
        where=_STRATEGY,
        field=alias,
        cel=f"!has(self.{alias}) || self.type == '{strategy_type}'",
        holds=holds,
        message=f"{alias} holds options of strategy type {strategy_type}, and type is another one",
        cure=f"Remove {alias}, or set type to {strategy_type}",
    )


_ABOUT_OPTIONS = (
    *(_of_type(name, traits.options) for name, traits in strategies.STRATEGIES.items() if traits.options),
    Rule(
        name="compression-type",
        where=_STRATEGY,
        field="compression",
        cel=f"self.compression == 'None' || self.type in {list(_COMPRESSES)}",
        holds=lambda strategy: strategy.compression == "None" or strategy.type in _COMPRESSES,
        message=f"compression is for gradients that are exchanged by type {', '.join(_COMPRESSES)}",
        cure="Remove compression",
    ),
    _native_only("all_reduce", "algorithm", "AllReduce"),
    _native_only("mirrored", "reduction", "Mirrored"),
    Rule(
        name="compression-meetings",
        where=_STRATEGY,
        field="compression",
        cel="self.type != 'LocalSGD' || !(self.compression in ['PowerSGD', 'TopK'])",
        holds=lambda strategy: strategy.type != "LocalSGD" or strategy.compression not in ("PowerSGD", "TopK"),
        message="compression PowerSGD and TopK send what they left out at the next step,"
        " and LocalSGD meets too seldom for that",
        cure="Set compression to BF16 or INT8",
    ),
    Rule(
        name="mesh-given",
        where=_STRATEGY,
        field="mesh",
        cel="self.type != 'Mesh' || has(self.mesh)",
        holds=lambda strategy: strategy.type != "Mesh" or strategy.mesh is not None,
        message="type Mesh needs mesh: how many ranks for each kind of parallelism",
        cure="Set mesh, for example {data: 2, tensor: 2}",
    ),
    Rule(
        name="staleness-async",
        where=("spec.strategy.parameterServer",),
        field="maxStaleness",
        cel="!has(self.maxStaleness) || self.update == 'Async'",
        holds=lambda options: options.max_staleness is None or options.update == "Async",
        message="maxStaleness is for update Async; with Sync nobody is ever behind",
        cure="Remove maxStaleness, or set update to Async",
    ),
    Rule(
        name="backup-sync",
        where=("spec.strategy.parameterServer",),
        field="backupWorkers",
        cel="self.backupWorkers == 0 || self.update == 'Sync'",
        holds=lambda options: options.backup_workers == 0 or options.update == "Sync",
        message="backupWorkers is for update Sync; with Async nobody is waited for",
        cure="Remove backupWorkers, or set update to Sync",
    ),
)

_MESH_MESSAGE = (
    "strategy.mesh asks for {mesh} ranks (the product of its members),"
    " but workers.replicas times workers.gpus (1 where gpus is 0) is {ranks}"
)
_MESH_FIGURES = {"mesh": Figure(_MESH, _mesh), "ranks": Figure(CEL_RANKS, ranks)}

_ABOUT_RANKS = (
    Rule(
        name="one-machine",
        where=_SPEC,
        field="workers.replicas",
        cel=f"!(self.strategy.type in {list(_ONE_MACHINE)}) || self.workers.replicas == 1",
        holds=lambda spec: spec.strategy.type not in _ONE_MACHINE or spec.workers.replicas == 1,
        message=f"{', '.join(_ONE_MACHINE)} train on one machine, and workers.replicas is {{replicas}}",
        cure="Set workers.replicas to 1, or strategy.type to AllReduce",
        figures={"replicas": Figure("self.workers.replicas", lambda spec: int(spec.workers.replicas))},
    ),
    Rule(
        name="one-device",
        where=_SPEC,
        field="workers.gpus",
        cel="self.strategy.type != 'OneDevice' || self.workers.gpus <= 1",
        holds=lambda spec: spec.strategy.type != "OneDevice" or spec.workers.gpus <= 1,
        message="OneDevice uses one GPU, and workers.gpus is {gpus}",
        cure="Set workers.gpus to 1, or strategy.type to Mirrored",
        figures={"gpus": Figure("self.workers.gpus", lambda spec: int(spec.workers.gpus))},
    ),
    Rule(
        name="many-ranks",
        where=_SPEC,
        field="workers.replicas",
        cel=f"!(self.strategy.type in {list(_MANY_RANKS)}) || {CEL_RANKS} >= {_MANY}",
        holds=lambda spec: spec.strategy.type not in _MANY_RANKS or ranks(spec) >= _MANY,
        message=f"{', '.join(_MANY_RANKS)} need at least {_MANY} ranks"
        " (workers.replicas times workers.gpus, or 1 where gpus is 0)",
        cure="Raise workers.replicas or workers.gpus, or set strategy.type to OneDevice",
    ),
    Rule(
        name="mesh-size",
        where=_SPEC,
        field="strategy.mesh",
        cel=f"self.strategy.type != 'Mesh' || !has(self.strategy.mesh) || {_MESH} == {CEL_RANKS}"
        f" || {CEL_RANKS} % {_COPY} != 0",
        holds=lambda spec: _mesh_fits(spec) or ranks(spec) % _copy(spec) != 0,
        message=_MESH_MESSAGE,
        cure="Set strategy.mesh.data to {data}, or have as many ranks as the mesh asks for",
        figures={**_MESH_FIGURES, "data": Figure(f"{CEL_RANKS} / {_COPY}", lambda spec: ranks(spec) // _copy(spec))},
    ),
    Rule(
        name="mesh-copy",
        where=_SPEC,
        field="strategy.mesh",
        cel=f"self.strategy.type != 'Mesh' || !has(self.strategy.mesh) || {_MESH} == {CEL_RANKS}"
        f" || {CEL_RANKS} % {_COPY} == 0",
        holds=lambda spec: _mesh_fits(spec) or ranks(spec) % _copy(spec) == 0,
        message=_MESH_MESSAGE,
        cure="Have as many ranks as the mesh asks for, or a multiple of {copy} (sharded times pipeline times tensor)",
        figures={**_MESH_FIGURES, "copy": Figure(_COPY, _copy)},
    ),
    Rule(
        name="gossip-peers",
        where=_SPEC,
        field="strategy.gossip.peers",
        cel="!has(self.strategy.gossip) || self.strategy.gossip.peers == 1"
        f" || self.strategy.gossip.peers < {CEL_RANKS}",
        holds=lambda spec: (
            not spec.strategy.gossip or spec.strategy.gossip.peers == 1 or spec.strategy.gossip.peers < ranks(spec)
        ),
        message="strategy.gossip.peers must be smaller than the number of ranks, which is {ranks}",
        cure="Lower peers, or raise workers.replicas",
        figures={"ranks": Figure(CEL_RANKS, ranks)},
    ),
    Rule(
        name="backup-workers",
        where=_SPEC,
        field="strategy.parameterServer.backupWorkers",
        cel="!has(self.strategy.parameterServer) || self.strategy.parameterServer.backupWorkers == 0"
        f" || self.strategy.parameterServer.backupWorkers < {CEL_RANKS}",
        holds=lambda spec: (
            not spec.strategy.parameter_server
            or spec.strategy.parameter_server.backup_workers == 0
            or spec.strategy.parameter_server.backup_workers < ranks(spec)
        ),
        message="strategy.parameterServer.backupWorkers must leave at least one of the {ranks} ranks to train",
        cure="Lower backupWorkers, or raise workers.replicas",
        figures={"ranks": Figure(CEL_RANKS, ranks)},
    ),
    Rule(
        name="servers-wanted",
        where=_SPEC,
        field="parameterServers",
        cel="!has(self.parameterServers) || self.strategy.type == 'ParameterServer'",
        holds=lambda spec: spec.parameter_servers is None or spec.strategy.type == "ParameterServer",
        message="parameterServers are for strategy.type ParameterServer, and this is another one",
        cure="Remove parameterServers, or set strategy.type to ParameterServer",
    ),
)

_ABOUT_BATCHES = (
    Rule(
        name="batch-covers-ranks",
        where=_SPEC,
        field="training.globalBatchSize",
        cel=f"!has(self.training.globalBatchSize) || self.training.globalBatchSize >= {_SHARES}",
        holds=lambda spec: spec.training.global_batch_size is None or _batch(spec) >= shares(spec),
        message="training.globalBatchSize is {batch}, but the batch is shared among {shares} ranks"
        " and each needs a sample",
        cure="Raise globalBatchSize, or use fewer workers or gpus",
        figures={"batch": Figure("self.training.globalBatchSize", _batch), "shares": Figure(_SHARES, shares)},
    ),
    Rule(
        name="batch-covers-micro-batches",
        where=_SPEC,
        field="strategy.pipeline.microBatches",
        cel="!has(self.strategy.pipeline) || !has(self.strategy.pipeline.microBatches)"
        " || !has(self.training.globalBatchSize)"
        " || self.strategy.pipeline.microBatches <= self.training.globalBatchSize",
        holds=lambda spec: (
            spec.strategy.pipeline is None
            or spec.strategy.pipeline.micro_batches is None
            or spec.training.global_batch_size is None
            or spec.strategy.pipeline.micro_batches <= _batch(spec)
        ),
        message="strategy.pipeline.microBatches cuts a batch of {batch} samples into more parts than it has",
        cure="Lower microBatches, or raise training.globalBatchSize",
        figures={"batch": Figure("self.training.globalBatchSize", _batch)},
    ),
)

RULES = (*_ABOUT_OPTIONS, *_ABOUT_RANKS, *_ABOUT_BATCHES)
