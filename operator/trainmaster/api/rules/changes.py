"""Hold the rules on what may be edited when: some fields only while the job is suspended, and none once it has ended.

All other fields may be edited at any time: core/situation/revision.py says which of them the pods are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmaster.api.job_states import TERMINAL
from trainmaster.api.roles import TPU
from trainmaster.api.rules.rule import Rule

_SUSPEND = (
    "Set suspend to true first, wait for phase Suspended, and change it then (checkpoints inside the pods go with them)"
)
_ANOTHER = f"{_SUSPEND}, or create another job"
_ANOTHER_TRAINING = (
    f"{_SUSPEND}; checkpoints of another globalBatchSize, seed or model are refused then: for these create another"
    " job, with checkpoint.resumeFrom unless the model is another"
)
_ENDED = sorted(map(str, TERMINAL))
_CEL_OVER = f"(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in {_ENDED})"
_CEL_SUSPENDED = (
    "(has(oldSelf.status) && has(oldSelf.status.attempt) && oldSelf.status.attempt > 0 ?"
    " has(oldSelf.status.phase) && oldSelf.status.phase == 'Suspended' : oldSelf.spec.suspend)"
)


def _free(job: Any) -> bool:
    """Return whether nothing of the job runs.

    Before the first attempt `spec.suspend` decides, because no operator may have seen the job yet. A job that has ended
    counts as free, because another rule has the right message for it.
    """
    if job.status.finished:
        return True
    return bool(job.status.phase == "Suspended" if job.status.attempt else job.spec.suspend)


def _fixed(field: str, cel: str, same: Callable[[Any, Any], bool], cure: str = _ANOTHER, how: str = "") -> Rule:
    """Return a rule that `field` cannot change while the job runs.

    Another model or another place for checkpoints is another run. The rule is also for what is in the plan of each pod
    and must be the same for all ranks: a pod that is created later would have another value than the others. The phase
    decides, not `suspend`: of two changes at once only the last is seen.
    """
    return Rule(
        name=f"{field}-fixed",
        where=("",),
        field=f"spec.{field}",
        cel=f"{_CEL_OVER} || {_CEL_SUSPENDED} || {cel}",
        holds=lambda new, old: _free(old) or same(new.spec, old.spec),
        message=f"{field} cannot change{how} while the job runs",
        cure=cure,
        transition=True,
    )


def _unchanged(field: str) -> str:
    return f"self.spec.{field} == oldSelf.spec.{field}"


def _unchanged_if_any(field: str) -> str:
    path = f"spec.{field}"
    return f"(has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || {_unchanged(field)}))"


def _cel_tpu(job: str) -> str:
    path = f"{job}.spec.workers.accelerator"
    return f"(has({path}) && {path} == '{TPU}')"


def _same_but_for_its_time(new: Any, old: Any) -> bool:
    """Return whether only the time that an ended job is kept was changed."""
    kept = {"ttl_seconds_after_finished": old.spec.ttl_seconds_after_finished}
    return bool(new.spec.model_copy(update=kept) == old.spec)


_ALWAYS_THERE = ("strategy", "training", "workers", "checkpoint", "failurePolicy", "suspend", "reproducible")
_MAY_BE_UNSET = ("parameterServers", "elasticity", "scheduling", "activeDeadlineSeconds")
_OVER = Rule(
    name="over",
    where=("",),
    field="spec",
    cel=f"!{_CEL_OVER} || ("
    + " && ".join([*map(_unchanged, _ALWAYS_THERE), *map(_unchanged_if_any, _MAY_BE_UNSET)])
    + ")",
    holds=lambda new, old: not old.status.finished or _same_but_for_its_time(new, old),
    message="the job is over, and takes no change but of ttlSecondsAfterFinished",
    cure="Create another job, with checkpoint.resumeFrom to go on from this one's checkpoints",
    transition=True,
)

_STORAGE, _MEMORY, _RESUME = "checkpoint.storage", "checkpoint.memoryEverySteps", "checkpoint.resumeFrom"
_BEST = "checkpoint.best"
_EVERY, _GPUS, _ACCELERATOR = "checkpoint.everySteps", "workers.gpus", "workers.accelerator"
RULES = (
    _OVER,
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
    _fixed(_BEST, _unchanged_if_any(_BEST), lambda new, old: new.checkpoint.best == old.checkpoint.best),
    _fixed(_GPUS, _unchanged(_GPUS), lambda new, old: new.workers.gpus == old.workers.gpus),
    _fixed(
        _ACCELERATOR,
        f"{_cel_tpu('self')} == {_cel_tpu('oldSelf')}",
        lambda new, old: (new.workers.accelerator == TPU) == (old.workers.accelerator == TPU),
        how=f" from or to {TPU}",
    ),
    _fixed("reproducible", _unchanged("reproducible"), lambda new, old: new.reproducible == old.reproducible),
)
