"""Turn a pod template into the fields of workers, and what has no field of its own into their template."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from trainmaster.conversion.source import Document, SourceObject, compact

_SET_BY_US = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG")
_ONE_ADDRESS = "has no counterpart: replicas on one node would share what must be each one's own"
_UNSET = {
    "restartPolicy": "has no counterpart: Trainmaster restarts training itself, by spec.failurePolicy",
    "hostNetwork": _ONE_ADDRESS,
    "hostIPC": _ONE_ADDRESS,
    "hostPID": "has no counterpart: the agent must be process 1 of its pod",
    "shareProcessNamespace": "has no counterpart: the agent must be process 1 of its pod",
    "hostname": "has no counterpart: each replica has a name of its own",
    "subdomain": "has no counterpart: the replicas of a job find each other below its name",
    "activeDeadlineSeconds": "has no counterpart for one pod; write spec.activeDeadlineSeconds of the job",
}
_AS_IN_A_POD = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "priorityClassName",
    "serviceAccountName",
    "imagePullSecrets",
)
_OTHERS_LABELS = (
    "training.kubeflow.org/",
    "ray.io/",
    "trainer.kubeflow.org/",
    "trainmaster.dev/",
    "app.kubernetes.io/",
)
_PLAIN = ("cpu", "memory")


@dataclass
class Pod:
    """A pod as a TrainingJob has it: the fields of a role, and what its container ran."""

    fields: Document = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    working_directory: str | None = None


def read(template: SourceObject, main: str = "") -> Pod:
    """Return what a pod template says. `main` is the name of the container that trains; else it is the first."""
    metadata, spec = template.part("metadata"), template.part("spec")
    spec.leave(_UNSET)
    account = spec.text("serviceAccount")
    containers = spec.parts("containers")
    names = [container.take("name") for container in containers]
    at = names.index(main) if main in names else 0
    pod = _container(containers[at]) if containers else Pod()
    beneath = pod.fields.pop("template", {})
    sidecars = [{"name": str(names[n]), **one.rest()} for n, one in enumerate(containers) if n != at]
    known = compact((name, spec.take(name)) for name in _AS_IN_A_POD)
    if account:
        known.setdefault("serviceAccountName", account)
    pod.fields |= compact([("volumes", spec.take("volumes"))]) | known
    inner = compact([("containers", [*beneath, *sidecars]), *spec.rest().items()])
    about = _metadata(metadata)
    pod.fields |= compact([("template", compact([("metadata", about), ("spec", inner)]))])
    return pod


def _metadata(metadata: SourceObject) -> Document:
    labels = metadata.take("labels")
    kept = {
        str(name): str(value)
        for name, value in (labels.items() if isinstance(labels, dict) else ())
        if not str(name).startswith(_OTHERS_LABELS)
    }
    annotations = metadata.take("annotations")
    metadata.leave({"creationTimestamp": "is set by Kubernetes", "name": "is made of the job's name"})
    return compact([("labels", kept), ("annotations", annotations if isinstance(annotations, dict) else None)])


def _container(container: SourceObject) -> Pod:
    container.leave({"ports": "has no counterpart: replicas reach each other at any port"})
    command = [*container.words("command"), *container.words("args")]
    fields = compact((name, container.take(name)) for name in ("image", "imagePullPolicy", "envFrom", "volumeMounts"))
    fields |= compact([("env", _variables(container))])
    working = container.text("workingDir")
    more, left = _resources(container)
    fields |= more
    beneath = compact([*container.rest().items(), ("resources", left)])
    fields |= compact([("template", [{"name": "trainer", **beneath}] if beneath else None)])
    return Pod(fields, command, working)


def _variables(container: SourceObject) -> list[Document]:
    made = []
    for variable in container.parts("env"):
        name = variable.text("name") or ""
        if name in _SET_BY_US or name.startswith("PET_"):
            variable.rest()
            variable.notes.add(variable.path, f"{name} is set by Trainmaster for each rank, and is left out")
            continue
        value, source = variable.text("value"), variable.take("valueFrom")
        made.append(compact([("name", name), ("valueFrom", source)]) | ({} if value is None else {"value": value}))
    return made


def _resources(container: SourceObject) -> tuple[Document, Document]:
    """Return cpu, memory and GPUs; and what else is asked for, as it stands in a container."""
    resources = container.part("resources")
    limits, requests = _quantities(resources, "limits"), _quantities(resources, "requests")
    wanted = {**requests, **limits}
    for name in _PLAIN:
        if name in requests and name in limits and requests[name] != limits[name]:
            resources.notes.add(f"{resources.path}.requests.{name}", "differs from the limit, which is taken for both")
    fields = {name: wanted[name] for name in _PLAIN if name in wanted}
    devices = [name for name in wanted if name.rpartition("/")[2].startswith(("gpu", "tpu"))]
    for name in devices[:1]:
        count = wanted[name]
        if str(count).isdecimal():
            fields |= {"gpus": int(count)} | ({} if name == "nvidia.com/gpu" else {"gpuResource": name})
            fields |= {"accelerator": "tpu"} if name == "google.com/tpu" else {}
    others = {name: str(value) for name, value in wanted.items() if name not in (*_PLAIN, *devices[:1])}
    return fields, compact([("limits", others), ("claims", resources.take("claims"))])


def _quantities(resources: SourceObject, name: str) -> Document:
    value = resources.take(name)
    return {str(key): amount for key, amount in value.items() if amount is not None} if isinstance(value, dict) else {}


def differing(first: Pod, second: Pod) -> list[str]:
    """Return the names of what differs between two pods of one job."""
    names = dict.fromkeys([*first.fields, *second.fields])
    found = [name for name in names if first.fields.get(name) != second.fields.get(name)]
    return found + (["command"] if first.command != second.command else [])


def cores(value: Any) -> int:
    """Return the whole cores of a quantity of CPU, 0 where it is less or none."""
    text = str(value or 0)
    try:
        return math.floor(int(text[:-1]) / 1000 if text.endswith("m") else float(text))
    except (ValueError, OverflowError):
        return 0
