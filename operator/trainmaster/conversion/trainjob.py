"""Read TrainJob of Kubeflow Trainer. What its runtime says is known only if the file has the runtime, too."""

from __future__ import annotations

from typing import Any

from trainmaster.conversion import commands, pod_templates
from trainmaster.conversion.source import Document, SourceObject, compact

_RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
_FRAMEWORKS = {"jax": "JAX", "xgboost": "XGBoost", "mpi": "MPI", "tensorflow": "TensorFlow"}
_LEFT = {
    "initializer": "has no counterpart: the script, or an init container of workers.template, fetches data and models",
    "managedBy": "has no counterpart yet: gangs and queues are not supported",
    "podTemplateOverrides": "is left out: write what it changes into workers or workers.template",
    "runtimePatches": "is left out: write what it changes into workers or workers.template",
    "labels": "is left out: write labels of pods into workers.template.metadata",
    "annotations": "is left out: write annotations of pods into workers.template.metadata",
}


def convert(spec: SourceObject, documents: list[Any]) -> Document:
    """Return the spec of a TrainingJob."""
    reference = spec.part("runtimeRef")
    name = reference.text("name") or ""
    reference.rest()
    made: Document = {"suspend": True} if spec.take("suspend") is True else {}
    made |= compact([("activeDeadlineSeconds", spec.number("activeDeadlineSeconds"))])
    spec.leave(_LEFT)
    pod, nodes = _runtime(name, documents, spec)
    trainer = spec.part("trainer")
    own = pod_templates.read(_template(trainer))
    spec.notes.rename(f"{trainer.path}.spec.containers[0].resources", f"{trainer.path}.resourcesPerNode")
    workers = {"replicas": trainer.number("numNodes") or nodes, **pod.fields, **_joined(pod, own)}
    words, told = commands.of_container(own.command or pod.command, f"{trainer.path}.command", workers, spec.notes)
    made |= compact([("failurePolicy", told.get("failurePolicy"))])
    processes = trainer.text("numProcPerNode")
    if processes and processes.isdecimal() and int(processes) > 1 and "gpus" not in workers:
        trainer.notes.add(f"{trainer.path}.numProcPerNode", f"is gpus: {processes} where each process has a GPU")
        workers["gpus"] = int(processes)
    framework = next((ours for theirs, ours in _FRAMEWORKS.items() if name.startswith(theirs)), None)
    training = compact([("framework", framework), ("command", words), ("workingDirectory", pod.working_directory)])
    return {"strategy": {"type": "AllReduce"}, "training": training, "workers": workers, **made}


def _template(trainer: SourceObject) -> SourceObject:
    """Return the trainer's fields as a pod template with one container."""
    taken = compact((name, trainer.take(name)) for name in ("image", "command", "args", "env"))
    container = {**taken, "resources": trainer.take("resourcesPerNode")}
    return SourceObject({"spec": {"containers": [container]}}, trainer.path, trainer.notes)


def _joined(pod: pod_templates.Pod, own: pod_templates.Pod) -> Document:
    """Return what the trainer says over its runtime; variables of both count."""
    names = {variable["name"] for variable in own.fields.get("env", [])}
    kept = [variable for variable in pod.fields.get("env", []) if variable["name"] not in names]
    return own.fields | compact([("env", [*kept, *own.fields.get("env", [])])])


def _runtime(name: str, documents: list[Any], spec: SourceObject) -> tuple[pod_templates.Pod, int]:
    """Return the pod of the runtime, and its number of nodes, where the file has it."""
    for document in documents:
        if not isinstance(document, dict) or document.get("kind") not in _RUNTIMES:
            continue
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("name") != name:
            continue
        runtime = SourceObject(document.get("spec"), f"{document['kind']}.spec", spec.notes)
        policy = runtime.part("mlPolicy")
        nodes = policy.number("numNodes") or 1
        policy.rest()
        return _node(runtime), nodes
    spec.notes.add(
        "spec.runtimeRef",
        f"what the runtime {name} sets (image, command, resources) is not in this file. Add it to the file after a "
        f"line with --- (kubectl get clustertrainingruntime {name} -o yaml), or write it yourself",
    )
    return pod_templates.Pod(), 1


def _node(runtime: SourceObject) -> pod_templates.Pod:
    jobs = runtime.part("template").part("spec").parts("replicatedJobs")
    for job in jobs:
        if job.text("name") == "node":
            inner = job.part("template").part("spec").part("template")
            pod = pod_templates.read(inner, "node")
            job.rest()
            return pod
    return pod_templates.Pod()
