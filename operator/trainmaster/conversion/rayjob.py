"""Read RayJob of KubeRay: its entrypoint becomes the command, its first worker group the workers."""

from __future__ import annotations

import re

from trainmaster.api.rules.code_rules import PACKAGE
from trainmaster.conversion import commands, pod_templates
from trainmaster.conversion.source import ConversionError, Document, SourceObject, compact

_STARTED = "is not needed: Trainmaster starts Ray's nodes itself, as the image has Ray"
_LEFT = {
    "submissionMode": "has no counterpart: nothing submits but Trainmaster itself",
    "submitterPodTemplate": "has no counterpart: nothing submits but Trainmaster itself",
    "submitterConfig": "has no counterpart: nothing submits but Trainmaster itself",
    "shutdownAfterJobFinishes": "has no counterpart: pods end with the job",
    "deletionPolicy": "has no counterpart: pods end with the job",
    "deletionStrategy": "has no counterpart: pods end with the job",
    "jobId": "has no counterpart",
    "metadata": "has no counterpart",
    "managedBy": "has no counterpart yet: gangs and queues are not supported",
    "entrypointNumCpus": "has no counterpart: the command runs in each worker",
    "entrypointNumGpus": "has no counterpart: the command runs in each worker",
    "entrypointResources": "has no counterpart: the command runs in each worker",
}
_CLUSTER = {
    "rayVersion": _STARTED,
    "enableInTreeAutoscaling": "has no counterpart; see spec.elasticity",
    "autoscalerOptions": "has no counterpart; see spec.elasticity",
    "gcsFaultToleranceOptions": _STARTED,
    "headServiceAnnotations": _STARTED,
}
_GROUP = {
    "rayStartParams": _STARTED,
    "scaleStrategy": "has no counterpart; see spec.elasticity",
    "idleTimeoutSeconds": "has no counterpart; see spec.elasticity",
    "numOfHosts": "has no counterpart: write all hosts as workers.replicas",
}
_RAY = (
    "runs in the first worker, beside the head of a Ray cluster that is the job's own. ray.init() takes no arguments "
    "there, and the cluster begins anew after a failure: see docs/frameworks/ray.md"
)


def convert(spec: SourceObject) -> Document:
    """Return the spec of a TrainingJob.

    Raises:
        ConversionError: it names a cluster that runs already, or no entrypoint.
    """
    if "clusterSelector" in spec:
        raise ConversionError("spec.clusterSelector names a cluster that runs already: its pods are not in this file")
    entrypoint = spec.text("entrypoint")
    if not entrypoint:
        raise ConversionError("spec.entrypoint is missing: there is nothing to start")
    spec.notes.add("spec.entrypoint", _RAY)
    spec.leave(_LEFT)
    cluster = spec.part("rayClusterSpec")
    cluster.leave(_CLUSTER)
    group, count, more = _group(cluster)
    workers: Document = {"replicas": count + more}
    made = _bounds(group, more)
    group.leave(_GROUP)
    workers |= pod_templates.read(group.part("template"), "ray-worker").fields
    words, told = commands.of_container(commands.split(entrypoint), "spec.entrypoint", workers, spec.notes)
    variables, packages = _environment(spec)
    workers |= compact([("env", [*workers.get("env", []), *variables])])
    training = compact([("framework", "Ray"), ("command", words), ("packages", packages)])
    made |= compact([("failurePolicy", told.get("failurePolicy"))])
    made |= commands.run_policy(spec)
    return {"strategy": {"type": "AllReduce"}, "training": training, "workers": workers, **made}


def _group(cluster: SourceObject) -> tuple[SourceObject, int, int]:
    """Return the group that trains, or else the head; its number of pods; and how many the head adds to them."""
    groups = cluster.parts("workerGroupSpecs")
    head = cluster.part("headGroupSpec")
    if not groups:
        return head, 1, 0
    more = 0
    if head:
        idle = str(head.part("rayStartParams").take("num-cpus")) == "0"
        more = 0 if idle else 1
        head.rest()
        what = "has no pod of its own" if idle else "is one replica more, as the workers have it"
        cluster.notes.add(
            f"{cluster.path}.headGroupSpec", f"{what}: the first worker has the head and runs the command"
        )
    group = groups[0]
    for other in groups[1:]:
        other.rest()
        cluster.notes.add(other.path, "is left out: all workers are alike, as the first group has them")
    group.take("groupName")
    count = group.number("replicas")
    return group, 1 if count is None else max(count, 1), more


def _bounds(group: SourceObject, more: int) -> Document:
    least, most = group.number("minReplicas"), group.number("maxReplicas")
    if most and least is not None and least < most and most < 1000:  # noqa: PLR2004 larger ones mean no bound
        return {"elasticity": {"minReplicas": max(least, 1) + more, "maxReplicas": most + more}}
    return {}


def _environment(spec: SourceObject) -> tuple[list[Document], Document]:
    """Return the variables and the packages of the runtime environment, and note what else it does."""
    text = spec.text("runtimeEnvYAML")
    if not text:
        return [], {}
    from trainmaster.api import yaml_text  # noqa: PLC0415 (it is needed here alone)

    read = next(iter(yaml_text.read(text.encode())), None)
    runtime = SourceObject(read.data if read and not read.problems else text, "spec.runtimeEnvYAML", spec.notes)
    runtime.leave(
        {
            "conda": "has no counterpart: put the packages into the image",
            "working_dir": "has no counterpart: trainmaster submit sends the folder of the job file",
            "py_modules": "has no counterpart: trainmaster submit sends the folder of the job file",
        }
    )
    found, packages = runtime.part("env_vars").rest(), [*_packages(runtime, "pip"), *_packages(runtime, "uv")]
    runtime.tell_unread()
    return [{"name": name, "value": str(value)} for name, value in found.items()], compact([("names", packages)])


def _packages(runtime: SourceObject, installer: str) -> list[str]:
    """Return the packages that training.packages can name, and note the others."""
    listed = runtime.take(installer)
    part = SourceObject(
        listed if isinstance(listed, dict) else {"packages": listed}, f"{runtime.path}.{installer}", runtime.notes
    )
    words = part.words("packages")
    part.tell_unread()
    named = [word for word in words if re.fullmatch(PACKAGE, word)]
    for word in words:
        if word not in named:
            runtime.notes.add(
                part.path,
                f"{word} is no package with its version: write it like timm==1.0.19 into training.packages.names",
            )
    return named
