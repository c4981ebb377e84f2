"""Frameworks with daemons or sockets of their own, in pods that mount their environments; a process is killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.framework_jobs import a_spec, environments, mount, said, wait_until_pods_have_ended
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document
from tools.onebox import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def java() -> dict[str, Path]:
    """The folders of this machine's Java: its home, and what that links to elsewhere, as Debian's settings."""
    found = shutil.which("java")
    assert found, "there is no java, which Spark needs"
    home = Path(found).resolve().parents[1]
    linked = [path.resolve() for path in home.glob("conf/**/*") if path.is_symlink()]
    settings = os.path.commonpath([path.parent for path in linked]) if linked else str(home / "conf")
    return {"java": home, "java-settings": Path(settings)}


@pytest.fixture(scope="module")
def job(cluster: Flavour) -> Iterator[Callable[[str], Job]]:
    """A job of this name in a namespace that has the environments, and Java."""
    with environments(cluster, **java()) as named:
        yield named


def ends_right(one: Job, killed: str = "worker-1 rank 1") -> list[str]:
    """What is said by a job that succeeds after one death; nobody serves on after it."""
    (line,) = one.wait("Succeeded", 500)["restarts"]
    assert (line["exit"], line["replica"]) == ("SIGKILL", killed), line
    wait_until_pods_have_ended(one)
    return said(one)


def test_mpirun_reaches_the_other_pod_without_sshd(job: Callable[[str], Job]) -> None:
    spec = a_spec("MPI", "mpi", DIE_IN_ATTEMPT="1")
    spec["training"]["command"] = [
        *("/frameworks/mpi/bin/mpirun", "-np", "2", "--map-by", "node"),
        *("python3", "/scripts/mpi_sum.py"),
    ]
    one = job("mpi").submit(**spec)
    status = one.wait("Succeeded", 300)
    assert said(one) == ["processes=2 total=3 replicas=0,1"]
    assert len(status["restarts"]) == 1
    wait_until_pods_have_ended(one)


def test_lightgbm_has_one_model_in_all_pods_after_a_death(job: Callable[[str], Job]) -> None:
    """In the image of its family, as its wheel needs a library of Debian's."""
    spec = a_spec("LightGBM", "boost", "/scripts/lightgbm_trees.py", DIE_IN_ATTEMPT="1")
    spec["workers"]["image"] = Cluster().load_framework("boost")
    first, second = ends_right(job("lightgbm").submit(**spec))
    assert first == second
    assert first.startswith("machines=2 ")


def test_horovod_trains_as_one_process_does(job: Callable[[str], Job]) -> None:
    spec = a_spec("Horovod", "horovod", "/scripts/horovod_sgd.py", DIE_IN_ATTEMPT="1")
    told = ends_right(job("horovod").submit(**spec))
    assert told == [f"rank={rank}/2 local=0/1 cross={rank}/2 total=3" for rank in range(2)]


def test_rays_actors_are_in_all_pods(job: Callable[[str], Job]) -> None:
    spec = a_spec("Ray", "ray", "/scripts/ray_sum.py", DIE_IN_ATTEMPT="1")
    assert ends_right(job("ray").submit(**spec)) == ["[(0, 2450, False), (1, 2500, False)]"]


def test_sparks_workers_are_in_all_pods(job: Callable[[str], Job]) -> None:
    spec = with_java(a_spec("Spark", "spark", "/scripts/spark_sum.py", DIE_IN_ATTEMPT="1"))
    told = ends_right(job("spark").submit(**spec), "worker-2 rank 2")
    assert told == ["tasks=2 workers=1,2 total=4950 secret=true"]


def with_java(spec: Document) -> Document:
    """The job with three workers, which find Java where this machine has it."""
    spec["workers"]["replicas"] = 3
    for name, folder in java().items():
        mount(spec, str(folder), persistentVolumeClaim={"claimName": name})
    home = str(java()["java"])
    spec["workers"]["env"].append({"name": "JAVA_HOME", "value": home})
    return spec
