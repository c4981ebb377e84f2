"""Jobs of other frameworks in pods: an image that has Python alone, and an environment that is mounted into it.

The environments are those of `make setup-frameworks`, as folders of this machine that both nodes see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import new_namespace
from tests.cluster.flavours import Flavour
from tests.cluster.operator_jobs import Document, Job
from tests.frameworks.jobs import CACHE, SCRIPTS, python
from tools.onebox import Cluster
from tools.onebox.paths import OPERATOR_IMAGE

ENVIRONMENTS, KEPT, SOURCES = "frameworks", "models", "scripts"


@contextmanager
def environments(cluster: Flavour) -> Iterator[Callable[[str], Job]]:
    """Make a namespace with the environments, and tell how to name a job in it."""
    if not isinstance(cluster, Cluster):
        pytest.skip("the environments are folders of this machine, which the nodes of another cluster do not see")
    with new_namespace(cluster) as namespace:
        _provide(cluster, namespace)
        yield lambda name: Job(cluster, namespace, name)
    # The volume belongs to no namespace.
    cluster.kubectl("delete", "persistentvolume", f"{ENVIRONMENTS}-{namespace}", "--wait=false")


def _provide(cluster: Flavour, namespace: str) -> None:
    """Make what the jobs of a namespace mount: the environments, a claim for what they save, and the scripts."""
    volume = f"{ENVIRONMENTS}-{namespace}"
    own = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "claimRef": {"namespace": namespace, "name": ENVIRONMENTS},
        "hostPath": {"path": str(CACHE / "frameworks")},
    }
    Job(cluster, namespace).create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": own},
        _claim(ENVIRONMENTS, accessModes=["ReadOnlyMany"], storageClassName="", volumeName=volume),
        _claim(KEPT, accessModes=["ReadWriteMany"]),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": SOURCES},
            "data": {path.name: path.read_text() for path in SCRIPTS.glob("*.py")},
        },
    )


def start(job: Job, framework: str, environment: str, *command: str, servers: int = 0, **variables: str) -> Job:
    """Submit a job of two workers whose Python finds the framework of one of the environments."""
    libraries = Path(python(environment)).parents[1] / "lib"
    (version,) = [path.name for path in libraries.glob("python3.*")]
    variables["PYTHONPATH"] = f"/frameworks/{environment}/lib/{version}/site-packages"
    return start_in(OPERATOR_IMAGE, job, framework, *command, servers=servers, **variables)


def start_in(image: str, job: Job, framework: str, *command: str, servers: int = 0, **variables: str) -> Job:
    """Submit a job of two workers whose image has the framework, or finds it by a variable."""
    role: Document = {
        "replicas": 2,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
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
    return job.submit(**spec, **({"parameterServers": {**role, "replicas": servers}} if servers else {}))


def said(job: Job, word: str = "RIGHT") -> list[str]:
    """What the ranks of all pods have printed after this word at the beginning of a line, by pod."""
    logs = [job.kubectl("logs", pod, "--container=trainer") for pod in sorted(job.pods()) if _is_of(job, pod)]
    return [found for log in logs for found in re.findall(rf"^{word} (.*)$", log, re.MULTILINE)]


def wait_until_pods_have_ended(job: Job) -> None:
    """Nobody serves on after the end of the job."""
    of_job = f"--selector=trainmaster.dev/job={job.name}"
    job.kubectl("wait", "pods", of_job, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s")


def _is_of(job: Job, pod: str) -> bool:
    return pod.startswith(f"{job.name}-")


def _claim(name: str, **spec: Any) -> Document:
    wanted = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted}
