"""A commit of a repository and packages of an index, in pods of a real cluster. The script is untouched torch code."""

from pathlib import Path

import pytest

from tests.git_server import GitServer, commit
from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.trainer.agent import wheels
from tools.onebox import Cluster
from tools.onebox.paths import GATEWAY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

# At the first attempt it waits for the end that the test brings.
SCRIPT = """
import os, sys, time
import bright
from parts.naming import greet

attempt = int(os.environ["TRAINMASTER_ATTEMPT"])
hidden = not any("s3cret" in value or "t0ken" in value for name, value in os.environ.items() if name != "PIP_INDEX_URL")
print(greet(), bright.VERSION, "rank", os.environ["RANK"], "attempt", attempt, "hidden", hidden, flush=True)
time.sleep(600 if attempt == 1 else 0)

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), flush=True)
assert total.item() == 3.0
dist.destroy_process_group()
"""


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    if not isinstance(cluster, Cluster):
        pytest.skip("pods reach servers of this machine on the one-machine cluster alone")
    return Job(cluster, namespace, "mine")


def secret(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def test_a_commit_and_packages_are_the_same_in_each_pod_and_after_a_loss(job: Job, tmp_path: Path) -> None:
    code = tmp_path / "served" / "code"
    (code / "parts").mkdir(parents=True)
    (code / "parts" / "naming.py").write_text("def greet():\n    return 'a commit trains'\n")
    (code / "script.py").write_text(SCRIPT)
    wheels.wheel(tmp_path / "wheels", "bright", "1.0", needs="torch")
    repository = GitServer(tmp_path / "served", password="t0ken", host=GATEWAY)
    with repository.serving(), wheels.index(tmp_path / "wheels", "s3cret", GATEWAY) as port:
        job.create(
            secret("git", username="me", password="t0ken"),
            secret("index", url=f"http://me:s3cret@{GATEWAY}:{port}/simple"),
        )
        source = {"repository": f"{repository.url}/code/.git", "commit": commit(code), "secretName": "git"}
        training = {
            "command": ["python3", "script.py"],
            "code": {"git": source},
            "packages": {"names": ["bright==1.0"]},
        }
        index = {"name": "PIP_INDEX_URL", "valueFrom": {"secretKeyRef": {"name": "index", "key": "url"}}}
        env = [index, {"name": "PIP_TRUSTED_HOST", "value": GATEWAY}]
        job.submit(training=training, workers={"replicas": 2, "env": env})
        job.wait("Running")
        (code / "parts" / "naming.py").write_text("raise SystemExit('changed since')\n")
        commit(code)
        job.kubectl("delete", "pod", "mine-worker-1-0", "--grace-period=1", "--wait=false")
        job.wait("Succeeded")
    status = job.status()
    assert status["code"] == {"commit": source["commit"], "dirty": False, "source": source["repository"]}
    for pod, rank in (("mine-worker-0-0", 0), ("mine-worker-1-1", 1)):
        log = job.kubectl("logs", pod, "--container=trainer")
        assert f"a commit trains 1.0 rank {rank} attempt 2 hidden True" in log
        assert "sum 3.0 of 2" in log
        assert "s3cret" not in log
        assert "t0ken" not in log
    assert "Successfully installed bright-1.0" in log, "in the new pod, and no second torch"


def test_packages_that_are_not_there_end_the_job_by_name(job: Job, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    with wheels.index(tmp_path / "wheels", host=GATEWAY) as port:
        env = [{"name": "PIP_INDEX_URL", "value": f"http://{GATEWAY}:{port}/simple"}]
        env.append({"name": "PIP_TRUSTED_HOST", "value": GATEWAY})
        training = {"command": ["python3", "-c", "pass"], "packages": {"names": ["none-of-this-name==1"]}}
        job.submit(training=training, workers={"replicas": 1, "env": env})
        status = job.wait("Failed")
    (line,) = status["restarts"]
    assert line["class"] == "Configuration"
    assert "spec.training.packages: there is no such package or version" in line["evidence"]
