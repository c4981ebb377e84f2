"""From a folder to pods that train: `trainmaster submit`, and the commands that follow it, on a real cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trainmaster.cli import bundling

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job, without_torch
from tests.onebox.paced import DIGITS, Document

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TASK = """
from trainmaster_trainer.tasks.digits import Digits
from parts.naming import greet


class Mine(Digits):
    def evaluate(self, model):
        print(greet(), flush=True)
        return super().evaluate(model)
"""
# At the first attempt it waits for the end that the test brings.
SCRIPT = """
import os, time
from parts.naming import greet

attempt = int(os.environ["TRAINMASTER_ATTEMPT"])
print(greet(), "from rank", os.environ["RANK"], "attempt", attempt, flush=True)
time.sleep(600 if attempt == 1 else 0)
"""


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace, "mine")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A module, and a package with a file in a folder of its own."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "naming.py").write_text("def greet():\n    return 'my own code trains'\n")
    (tmp_path / "train.py").write_text(TASK)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def write(folder: Path, training: Document, **spec: object) -> Path:
    body = {"strategy": {"type": "AllReduce"}, "training": training, "workers": {"replicas": 2}, **spec}
    document = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": "mine"}, "spec": body}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def start(job: Job, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trainmaster", *words, "--namespace", job.namespace]
    environment = {**os.environ, "KUBECONFIG": str(job.cluster.kubeconfig)}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(job: Job, *words: str) -> str:
    process = start(job, *words)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    return out


def test_a_folder_trains_in_pods_and_comes_back(job: Job, folder: Path) -> None:
    out = run(job, "submit", str(write(folder, {**DIGITS, "task": "train:Mine"})), "--follow")
    assert "my own code trains" in out, "the log of rank 0 is followed to the end"
    status = job.status()
    assert (status["phase"], status["progress"]["step"]) == ("Succeeded", DIGITS["steps"])
    assert status["code"] == {"sha256": bundling.of_folder(folder).sha256}
    run(job, "code", "mine", "-o", str(folder / "back"))
    assert (folder / "back" / "parts" / "naming.py").read_text() == (folder / "parts" / "naming.py").read_text()
    run(job, "delete", "mine")
    job.kubectl("wait", "configmaps", "--selector=trainmaster.dev/job=mine", "--for=delete", "--timeout=200s")


def test_a_pod_that_is_lost_has_the_same_code_again_and_its_log_goes_on(job: Job, folder: Path) -> None:
    """In an image of one's own, which has Python and nothing of ours: the agent is brought in, and the code."""
    workers = {"replicas": 2, **without_torch(job.cluster)}
    path = write(folder, {"command": ["python3", "script.py"]}, workers=workers)
    run(job, "submit", str(path))
    job.wait("Running")
    (folder / "parts" / "naming.py").write_text("raise SystemExit('changed since')\n")
    following = start(job, "logs", "mine", "-f", "--rank", "1")
    assert following.stdout
    while "from rank 1 attempt 1" not in (line := following.stdout.readline()):
        assert line, "the log has ended"
    job.kubectl("delete", "pod", "mine-worker-1-0", "--grace-period=1", "--wait=false")
    assert "Succeeded" in run(job, "wait", "mine", "--timeout", "300")
    out, err = following.communicate(timeout=200)
    assert following.returncode == 0, err
    assert "my own code trains from rank 1 attempt 2" in out, err
    assert "attempt 2" in run(job, "logs", "mine", "--all")
    assert job.status()["incarnations"] == {"worker-1": 1}
    told = start(job, "logs", "mine", "--all", "--history")
    out, err = told.communicate(timeout=200)
    assert told.returncode == 0, err
    out = re.sub(" +", " ", out)  # the names are a column
    assert "worker-0-0 | trainmaster agent: worker/0: Waiting, attempt 1" in out, "of all its attempts"
    assert "worker-0-0 | my own code trains from rank 0 attempt 2" in out
    assert "worker-1-1 | my own code trains from rank 1 attempt 2" in out
    assert "worker-1-0 (its end) | my own code trains from rank 1 attempt 1" in out, "somebody deleted it"
