"""Build the variables of a replica's agent, and the plan for its trainer: the same on a laptop and on a cluster.

Both platforms use them when they create a replica; each adds what only it knows (address, token, operator's URL).
"""

import re
from typing import Any

from trainmaster.api.code import Code
from trainmaster.api.job import TrainingJob
from trainmaster.api.roles import TPU
from trainmaster.api.training_spec import TrainingSpec
from trainmaster.wire import codec, data_worker_defaults, frameworks, names
from trainmaster.wire.sources import GitSource, PackageSource, UrlSource
from trainmaster.wire.training import Aim, TrainingPlan

WHEELS_FOLDER = "/run/trainmaster/wheels"
"""Where a claim with wheels is mounted: users can mount nothing here."""


def training_plan(job: TrainingJob) -> TrainingPlan:
    """Return what the trainer needs to know of the spec."""
    training, checkpoint = job.spec.training, job.spec.checkpoint
    objects = checkpoint.storage.object_store if checkpoint.storage else None
    resume, limits = checkpoint.resume_from, job.spec.failure_policy.hang_limits
    slots = job.spec.workers.gpus or asked_cores(job, names.WORKER)
    return TrainingPlan(
        strategy=job.spec.strategy.type,
        strategy_options=job.spec.strategy.options,
        task=training.task,
        command=tuple(training.command or ()),
        slots=slots if frameworks.FRAMEWORKS[training.framework].has_slots else None,
        framework=None if training.framework == frameworks.TORCH else training.framework,
        arguments=dict(training.arguments or {}),
        steps=training.steps or 0,
        epochs=training.epochs,
        global_batch_size=training.global_batch_size or 0,
        seed=training.seed,
        precision=None if training.precision == "FP32" else training.precision,
        max_gradient_norm=training.max_gradient_norm,
        micro_batch_size=training.micro_batch_size,
        compile=bool(training.compile),
        recompute=bool(training.activation_checkpointing),
        ema=training.ema.decay if training.ema else None,
        data_workers=training.data_workers,
        prefetch=training.prefetch or data_worker_defaults.PREFETCH,
        evaluate_every=training.evaluate_every_steps,
        stop_early=Aim(stop.metric, stop.mode, stop.patience) if (stop := training.stop_early) else None,
        working_directory=training.working_directory,
        **_brought(training),
        trackers=None if training.trackers is None else training.trackers.chosen,
        progress=training.progress.expressions if training.progress else {},
        checkpoint_every=checkpoint.every_steps,
        checkpoint_keep=checkpoint.keep,
        checkpoint_best=Aim(best.metric, best.mode) if (best := checkpoint.best) else None,
        checkpoint_shared=checkpoint.storage is not None,
        checkpoint_url=f"{objects.url.rstrip('/')}/{job.name}-{job.uid[:8]}" if objects else None,
        checkpoint_endpoint=objects.endpoint if objects else None,
        memory_every=checkpoint.memory_every_steps,
        resume_from=resume.path if resume else None,
        resume_job=resume.job if resume else None,
        resume_step=resume.step if resume else None,
        reproducible=job.spec.reproducible,
        accelerator=TPU if job.spec.workers.accelerator == TPU else None,
        hang_seconds=limits.step,
        evaluation_seconds=limits.evaluation,
    )


def _brought(training: TrainingSpec) -> dict[str, Any]:
    """Return what the plan says of code and packages that the image does not have."""
    code, asked = training.code or Code(), training.packages
    url, git = code.url, code.git
    told = next((one for one in (code.bundle, url, git) if one), None)
    wheels = asked.wheels if asked else None
    folder = (wheels.path or WHEELS_FOLDER) if wheels else None  # else an index is asked
    return {
        "code": code.bundle.sha256 if code.bundle else None,
        "code_url": UrlSource(url.address, url.sha256, url.endpoint) if url else None,
        "code_git": GitSource(git.repository, git.commit) if git else None,
        "code_image": code.image is not None,
        "commit": told.commit if told else None,
        "packages": PackageSource(asked.names or (), asked.requirements, folder) if asked else None,
    }


def agent_environment(job: TrainingJob, role: str, index: int, incarnation: int) -> dict[str, str]:
    """Return the variables that both platforms set alike."""
    ranks, cores = job.spec.ranks_each if role == names.WORKER else 1, asked_cores(job, role)
    # A rank's share of the cores that the spec asks for (decision 0011). The node's own number of cores is never used:
    # sums over another number of threads differ in their last bits. `reproducible` means any world size.
    threads = 1 if job.spec.reproducible else max(1, (cores or 1) // ranks)
    return {
        names.ENV_JOB: f"{job.namespace}/{job.name}",
        names.ENV_JOB_UID: job.uid,
        names.ENV_ROLE: role,
        names.ENV_INDEX: str(index),
        names.ENV_INCARNATION: str(incarnation),
        names.ENV_RANKS: str(ranks),
        names.ENV_THREADS: str(threads),
        names.ENV_TRAINING: codec.encode(training_plan(job)).decode(),
        **({names.ENV_CORES: str(cores)} if cores else {}),
    }


def asked_cores(job: TrainingJob, role: str) -> int | None:
    """Return how many whole cores the spec asks for a replica, at least one; None where it asks for none."""
    asked = re.fullmatch(r"(\d+)(?:\.\d+)?(m?)", str(job.spec.roles[role].cores))
    return max(1, int(asked[1]) // (1000 if asked[2] else 1)) if asked else None
