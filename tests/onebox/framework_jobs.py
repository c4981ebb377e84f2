"""Jobs of other frameworks in pods: an image that has Python alone, and an environment that is mounted into it.

The environments are those of `make setup-frameworks`, as folders of this machine that both nodes see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs import CACHE, SCRIPTS, python
from tests.onebox.conftest import new_namespace
from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document
from tools.onebox import Cluster
from tools.onebox.paths import OPERATOR_IMAGE

ENVIRONMENTS, KEPT, SOURCES = "frameworks", "models", "scripts"


@contextmanager
def environments(cluster: Flavour, **more: Path) -> Iterator[Callable[[str], Job]]:
    """Make a namespace with the environments and more folders of this machine; tell how to name a job in it."""
    if not isinstance(cluster, Cluster):
        pytest.skip("the environments are folders of this machine, which the nodes of another cluster do not see")
    folders = {ENVIRONMENTS: CACHE / "frameworks", **more}
    with new_namespace(cluster) as namespace:
        _provide(cluster, namespace, folders)
        yield lambda name: Job(cluster, namespace, name)
    # The volumes belong to no namespace.
    volumes = [f"{name}-{namespace}" for name in folders]
    cluster.kubectl("delete", "persistentvolume", *volumes, "--wait=false")


def _provide(cluster: Flavour, namespace: str, folders: Mapping[str, Path]) -> None:
    """Make what the jobs of a namespace mount: claims for folders and for what they save, and the scripts."""
    Job(cluster, namespace).create(
        *(document for name, folder in folders.items() for document in _claimed(namespace, name, folder)),
        _claim(KEPT, accessModes=["ReadWriteMany"]),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": SOURCES},
            "data": {path.name: path.read_text() for path in SCRIPTS.iterdir() if path.is_file()},
        },
    )


def _claimed(namespace: str, name: str, folder: Path) -> list[Document]:
    """A folder of this machine as a volume, and the claim of that name."""
    volume = f"{name}-{namespace}"
    own = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "claimRef": {"namespace": namespace, "name": name},
        "hostPath": {"path": str(folder)},
    }
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": own},
        _claim(name, accessModes=["ReadOnlyMany"], storageClassName="", volumeName=volume),
    ]


def start(job: Job, framework: str, environment: str, *command: str, servers: int = 0, **variables: str) -> Job:
    """Submit a job of two workers whose Python finds the framework of one of the environments."""
    return job.submit(**a_spec(framework, environment, *command, servers=servers, **variables))


def start_in(image: str, job: Job, framework: str, *command: str) -> Job:
    """Submit a job of two workers whose image has the framework."""
    return job.submit(**a_spec_in(image, framework, *command))


def a_spec_in(image: str, framework: str, *command: str) -> Document:
    """A job of two workers whose image has the framework."""
    return _spec(image, framework, command)


def a_spec(framework: str, environment: str, *command: str, servers: int = 0, **variables: str) -> Document:
    """A job of two workers whose Python finds the framework of one of the environments."""
    libraries = Path(python(environment)).parents[1] / "lib"
    (version,) = [path.name for path in libraries.glob("python3.*")]
    variables["PYTHONPATH"] = f"/frameworks/{environment}/lib/{version}/site-packages"
    return _spec(OPERATOR_IMAGE, framework, command, servers, variables)


def _spec(
    image: str, framework: str, command: Sequence[str], servers: int = 0, variables: Mapping[str, str] | None = None
) -> Document:
    role: Document = {
        "replicas": 2,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in (variables or {}).items()],
        "volumes": [
            {"name": ENVIRONMENTS, "persistentVolumeClaim": {"claimName": ENVIRONMENTS}},
            {"name": SOURCES, "configMap": {"name": SOURCES}},
        ],
        "volumeMounts": [
            {"name": ENVIRONMENTS, "mountPath": "/frameworks", "readOnly": True},
            {"name": SOURCES, "mountPath": "/scripts"},
        ],
    }
    spec: Document = {
        "strategy": {"type": "ParameterServer" if servers else "AllReduce"},
        "training": {"framework": framework, "command": ["python3", *command], "workingDirectory": "/tmp"},  # noqa: S108
        "workers": role,
        "checkpoint": {"storage": {"persistentVolumeClaim": {"claimName": KEPT}}},
    }
    return {**spec, **({"parameterServers": {**role, "replicas": servers}} if servers else {})}


def folder_of(job: Job) -> Path:
    """Return where the job's checkpoints lie on this machine: on the claim, in a folder of its own."""
    volume = job.kubectl("get", f"persistentvolumeclaim/{KEPT}", "--output=jsonpath={.spec.volumeName}")
    path = job.cluster.kubectl("get", f"persistentvolume/{volume}", "--output=jsonpath={.spec.hostPath.path}")
    (found,) = [one.parent for one in Path(path).glob(f"{job.name}-*/metrics.jsonl")]
    return found


def mount(spec: Document, path: str, **volume: Any) -> None:
    """Have the workers of a job find a volume at a path, which names it too."""
    name = path.strip("/").replace("/", "-")
    spec["workers"]["volumes"].append({"name": name, **volume})
    spec["workers"]["volumeMounts"].append({"name": name, "mountPath": path})


def said(job: Job, word: str = "RIGHT") -> list[str]:
    """What the ranks of all pods have printed after this word at the beginning of a line, by pod."""
    logs = [job.kubectl("logs", pod, "--container=trainer") for pod in sorted(job.pods()) if _is_of(job, pod)]
    return [found for log in logs for found in re.findall(rf"^{word} (.*)$", log, re.MULTILINE)]


def wait_until_pods_have_ended(job: Job) -> None:
    """Nobody serves on after the end of the job."""
    of_job = f"--selector=trainmaster.dev/job={job.name}"
    job.kubectl("wait", "pods", of_job, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=200s")


def _is_of(job: Job, pod: str) -> bool:
    return pod.startswith(f"{job.name}-")


def _claim(name: str, **spec: Any) -> Document:
    wanted = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted}
