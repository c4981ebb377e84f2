"""Hold the rules on elasticity, checkpoints, failures and scheduling."""

from __future__ import annotations

from trainmaster.api.rules.rule import Figure, Rule, absolute, named, shaped
from trainmaster.api.rules.strategy_rules import CEL_MOST_RANKS, most_ranks
from trainmaster.wire import strategies

_SPEC = ("spec",)
_FIXED_SIZE = strategies.where(lambda traits: traits.fixed_size)
_ELASTIC_SHARES = strategies.where(lambda traits: traits.shares_batch and not traits.fixed_size)
_DAY = 86_400

_ELASTICITY = (
    Rule(
        name="elasticity-order",
        where=("spec.elasticity",),
        field="minReplicas",
        cel="self.minReplicas <= self.maxReplicas",
        holds=lambda elasticity: elasticity.min_replicas <= elasticity.max_replicas,
        message="minReplicas is larger than maxReplicas",
        cure="Lower minReplicas, or raise maxReplicas",
    ),
    Rule(
        name="elasticity-holds-replicas",
        where=_SPEC,
        field="workers.replicas",
        cel="!has(self.elasticity) || self.elasticity.minReplicas > self.elasticity.maxReplicas"
        " || (self.elasticity.minReplicas <= self.workers.replicas"
        " && self.workers.replicas <= self.elasticity.maxReplicas)",
        holds=lambda spec: (
            spec.elasticity is None
            or spec.elasticity.min_replicas > spec.elasticity.max_replicas
            or spec.elasticity.min_replicas <= spec.workers.replicas <= spec.elasticity.max_replicas
        ),
        message="workers.replicas is {replicas}, outside of elasticity.minReplicas {least} and maxReplicas {most}",
        cure="Change one of the three",
        figures={
            "replicas": Figure("self.workers.replicas", lambda spec: int(spec.workers.replicas)),
            "least": Figure("self.elasticity.minReplicas", lambda spec: int(spec.elasticity.min_replicas)),
            "most": Figure("self.elasticity.maxReplicas", lambda spec: int(spec.elasticity.max_replicas)),
        },
    ),
    Rule(
        name="elasticity-type",
        where=_SPEC,
        field="elasticity",
        cel=f"!has(self.elasticity) || !(self.strategy.type in {list(_FIXED_SIZE)})",
        holds=lambda spec: spec.elasticity is None or spec.strategy.type not in _FIXED_SIZE,
        message=f"{', '.join(_FIXED_SIZE)} have a fixed number of workers",
        cure="Remove elasticity, or set strategy.type to AllReduce",
    ),
    Rule(
        name="batch-covers-most",
        where=_SPEC,
        field="training.globalBatchSize",
        cel="!has(self.elasticity) || !has(self.training.globalBatchSize)"
        f" || !(self.strategy.type in {list(_ELASTIC_SHARES)})"
        f" || self.training.globalBatchSize >= {CEL_MOST_RANKS}",
        holds=lambda spec: (
            spec.elasticity is None
            or spec.training.global_batch_size is None
            or spec.strategy.type not in _ELASTIC_SHARES
            or spec.training.global_batch_size >= most_ranks(spec)
        ),
        message="training.globalBatchSize is too small for elasticity.maxReplicas:"
        " {ranks} ranks may share it, and each needs a sample",
        cure="Raise globalBatchSize, or lower maxReplicas",
        figures={"ranks": Figure(CEL_MOST_RANKS, most_ranks)},
    ),
)

_CHECKPOINTS = (
    Rule(
        name="storage-one",
        where=("spec.checkpoint.storage",),
        cel="[has(self.persistentVolumeClaim), has(self.path), has(self.objectStore)].filter(one, one).size() == 1",
        holds=lambda storage: (
            [storage.persistent_volume_claim, storage.path, storage.object_store].count(None) == 2  # noqa: PLR2004
        ),
        message="storage is one place",
        cure="Set exactly one of persistentVolumeClaim, path and objectStore",
    ),
    shaped(
        "object-store-url",
        ("spec.checkpoint.storage.objectStore",),
        "url",
        "[a-z][a-z0-9+]*://[^/ ]+(/[^ ]*)?",
        message="url is not the URL of a bucket",
        cure="Write it like s3://bucket/folder",
    ),
    shaped(
        "object-store-endpoint",
        ("spec.checkpoint.storage.objectStore",),
        "endpoint",
        "https?://[^/ ]+(/[^ ]*)?",
        message="endpoint is not the URL of a server",
        cure="Write it like http://minio.storage:9000",
    ),
    named("object-store-secret", ("spec.checkpoint.storage.objectStore",), "secretName"),
    absolute("storage-path-absolute", ("spec.checkpoint.storage",)),
    Rule(
        name="resume-one",
        where=("spec.checkpoint.resumeFrom",),
        cel="has(self.job) != has(self.path)",
        holds=lambda source: (source.job is None) != (source.path is None),
        message="resumeFrom is one place",
        cure="Set exactly one of job and path",
    ),
    Rule(
        name="resume-path-absolute",
        where=("spec.checkpoint.resumeFrom",),
        field="path",
        cel="!has(self.path) || self.path.startsWith('/') || self.path.contains('://')",
        holds=lambda source: source.path is None or source.path.startswith("/") or "://" in source.path,
        message="path is neither an absolute path nor a URL",
        cure="Begin it with /, or write a URL as s3://bucket/folder/digits-1f6f0c2a",
    ),
    named("claim-name-form", ("spec.checkpoint.storage.persistentVolumeClaim",), "claimName"),
)

_FAILURES = (
    Rule(
        name="hang-seconds",
        where=("spec.failurePolicy",),
        field="hangSeconds",
        cel=f"!has(self.hangSeconds) || (type(self.hangSeconds) == int ? (self.hangSeconds >= 1"
        f" && self.hangSeconds <= {_DAY}) : self.hangSeconds == 'auto')",
        holds=lambda policy: (
            policy.hang_seconds == "auto" or (isinstance(policy.hang_seconds, int) and 1 <= policy.hang_seconds <= _DAY)
        ),
        message="hangSeconds is neither auto nor a number of seconds within a day",
        cure="Write auto, or a whole number such as 300",
    ),
)

_SCHEDULING = (
    Rule(
        name="spares-type",
        where=_SPEC,
        field="scheduling.spares",
        cel="!has(self.scheduling) || self.scheduling.spares == 0"
        f" || !(self.strategy.type in {list(strategies.INDEPENDENT)})",
        holds=lambda spec: (
            spec.scheduling is None or spec.scheduling.spares == 0 or spec.strategy.type not in strategies.INDEPENDENT
        ),
        message="members of ParameterServer and Gossip come and go one by one: nobody waits for a lost worker,"
        " so a spare would only stand idle",
        cure="Remove spares, and raise workers.replicas instead",
    ),
    Rule(
        name="queue-needs-gang",
        where=("spec.scheduling",),
        field="queue",
        cel="!has(self.queue) || self.gang != 'None'",
        holds=lambda scheduling: scheduling.queue is None or scheduling.gang != "None",
        message="queue needs somebody who queues, and gang is None",
        cure="Remove queue",
    ),
    named("queue-form", ("spec.scheduling",), "queue"),
)


RULES = (*_ELASTICITY, *_CHECKPOINTS, *_FAILURES, *_SCHEDULING)
