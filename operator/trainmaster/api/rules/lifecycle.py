"""Rules on how a job lives: elasticity, checkpoints, failures, scheduling, and what may change while it runs."""

from __future__ import annotations

from typing import Any

from trainmaster.api.rules.rule import Figure, Rule, shaped
from trainmaster.api.rules.strategy import CEL_MOST_RANKS, most_ranks
from trainmaster.wire import strategies

_SPEC = ("spec",)
_FIXED_SIZE = strategies.where(lambda traits: traits.fixed_size)
_ELASTIC_SHARES = strategies.where(lambda traits: traits.shares_batch and not traits.fixed_size)
_SUBDOMAIN = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
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
    shaped(
        "object-store-secret",
        ("spec.checkpoint.storage.objectStore",),
        "secretName",
        _SUBDOMAIN,
        message="secretName is not a name that Kubernetes allows",
        cure="Use lower-case letters, digits, dashes and dots",
    ),
    Rule(
        name="storage-path-absolute",
        where=("spec.checkpoint.storage",),
        field="path",
        cel="!has(self.path) || self.path.startsWith('/')",
        holds=lambda storage: storage.path is None or storage.path.startswith("/"),
        message="path is not an absolute path",
        cure="Begin it with /",
    ),
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
    shaped(
        "claim-name-form",
        ("spec.checkpoint.storage.persistentVolumeClaim",),
        "claimName",
        _SUBDOMAIN,
        message="claimName is not a name that Kubernetes allows",
        cure="Use lower-case letters, digits, dashes and dots",
    ),
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
    shaped(
        "queue-form",
        ("spec.scheduling",),
        "queue",
        _SUBDOMAIN,
        message="queue is not a name that Kubernetes allows",
        cure="Use lower-case letters, digits, dashes and dots",
    ),
)


_SUSPEND = (
    "Set suspend to true first, wait for phase Suspended, and change it then (checkpoints inside the pods go with them)"
)
_ANOTHER = f"{_SUSPEND}, or create another job"
_ANOTHER_TRAINING = (
    f"{_SUSPEND}; checkpoints of another globalBatchSize, seed or model are refused then: for these create another"
    " job, with checkpoint.resumeFrom unless the model is another"
)
_CEL_SUSPENDED = (
    "(has(oldSelf.status) && has(oldSelf.status.attempt) && oldSelf.status.attempt > 0 ?"
    " has(oldSelf.status.phase) && oldSelf.status.phase == 'Suspended' : oldSelf.spec.suspend)"
)


def _suspended(job: Any) -> bool:
    """Also one that was made so, and that no operator has seen yet."""
    return bool(job.status.phase == "Suspended" if job.status.attempt else job.spec.suspend)


def _fixed(field: str, cel: str, same: Any, cure: str = _ANOTHER) -> Rule:
    """`field` holds while the job runs: another model or another place for checkpoints is another run.

    So does whatever stands in the plan of each pod and all ranks must agree on: a pod that comes later would have
    another one than those that train. The phase decides, not the wish: of two changes at once only the last is seen.
    """
    return Rule(
        name=f"{field}-fixed",
        where=("",),
        field=f"spec.{field}",
        cel=f"{_CEL_SUSPENDED} || {cel}",
        holds=lambda new, old: _suspended(old) or same(new.spec, old.spec),
        message=f"{field} cannot change while the job runs",
        cure=cure,
        transition=True,
    )


def _unchanged(field: str) -> str:
    return f"self.spec.{field} == oldSelf.spec.{field}"


def _unchanged_if_any(field: str) -> str:
    path = f"spec.{field}"
    return f"(has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || {_unchanged(field)}))"


_STORAGE, _MEMORY, _RESUME = "checkpoint.storage", "checkpoint.memoryEverySteps", "checkpoint.resumeFrom"
_EVERY, _GPUS = "checkpoint.everySteps", "workers.gpus"
_CHANGES = (
    _fixed("strategy", _unchanged("strategy"), lambda new, old: new.strategy == old.strategy),
    _fixed("training", _unchanged("training"), lambda new, old: new.training == old.training, _ANOTHER_TRAINING),
    _fixed(_STORAGE, _unchanged_if_any(_STORAGE), lambda new, old: new.checkpoint.storage == old.checkpoint.storage),
    _fixed(
        _RESUME,
        _unchanged_if_any(_RESUME),
        lambda new, old: new.checkpoint.resume_from == old.checkpoint.resume_from,
    ),
    _fixed(_EVERY, _unchanged(_EVERY), lambda new, old: new.checkpoint.every_steps == old.checkpoint.every_steps),
    _fixed(
        _MEMORY,
        _unchanged_if_any(_MEMORY),
        lambda new, old: new.checkpoint.memory_every_steps == old.checkpoint.memory_every_steps,
    ),
    _fixed(_GPUS, _unchanged(_GPUS), lambda new, old: new.workers.gpus == old.workers.gpus),
    _fixed("reproducible", _unchanged("reproducible"), lambda new, old: new.reproducible == old.reproducible),
)

RULES = (*_ELASTICITY, *_CHECKPOINTS, *_FAILURES, *_SCHEDULING, *_CHANGES)
