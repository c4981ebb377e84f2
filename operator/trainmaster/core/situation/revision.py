"""Compute the revision of a replica: all that the spec says of its pod, as one short text kept with the replica.

Both platforms write it where they create a replica, and return it with what they observe. Two texts are equal where
nothing that a pod is made of was changed; else `changed` names the fields. What the operator adds by itself (its own
image, nodes to keep away from, a measured grace period) is not in it: an edit is what a user does.
"""

import hashlib
import json

from trainmaster.api.job import TrainingJob

_LENGTH = 10
# Fields of the whole job that a pod, or the plan of its trainer, is made of.
_OF_THE_JOB = {
    "": ("strategy", "training", "reproducible"),
    "checkpoint": ("everySteps", "memoryEverySteps", "keep", "storage", "resumeFrom"),
    "failurePolicy": ("nodeLostSeconds",),
}


def revision_of(job: TrainingJob, role: str) -> str:
    """Return the revision that a replica of this role has when it is made now."""
    # What differs from the defaults, so that a field that a later version adds changes no revision.
    models = (job.spec.roles[role], job.spec)
    replica, spec = (one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in models)
    told = {f"{role}s.{key}": value for key, value in replica.items() if key != "replicas"}
    for part, keys in _OF_THE_JOB.items():
        holder = spec.get(part, {}) if part else spec
        told |= {f"{part}.{key}".lstrip("."): holder[key] for key in keys if key in holder}
    digests = {
        key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest() for key, value in told.items()
    }
    return ",".join(f"{field}={digests[field][:_LENGTH]}" for field in sorted(told))


def of_all(job: TrainingJob) -> str:
    """Return the revisions of all roles together."""
    return ";".join(revision_of(job, role) for role in job.spec.roles)


def changed(before: str, after: str) -> tuple[str, ...]:
    """Return the fields of the spec in which two revisions differ, as a user writes them."""
    differing = set(before.split(",")) ^ set(after.split(","))
    return tuple(sorted({f"spec.{item.partition('=')[0]}" for item in differing if item}))
