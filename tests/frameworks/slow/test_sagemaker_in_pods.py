"""SageMaker's containers in pods, where its folders are at /opt/ml: the real toolkit, and a program of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.framework_jobs import KEPT, a_spec, environments, mount, said
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ROWS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rows"}, "data": {"rows.txt": "1 2 3 4 5"}}


@pytest.fixture(scope="module")
def job(cluster: Flavour) -> Iterator[Callable[[str], Job]]:
    """A job of this name in a namespace that has the environments, and the rows of a channel."""
    with environments(cluster) as named:
        named("rows").create(ROWS)
        yield named


def in_opt_ml(command: list[str], arguments: Document, **variables: str) -> Document:
    """A job whose containers may write to /opt/ml, and have one channel."""
    spec = a_spec("SageMaker", "sagemaker", servers=0, **variables)
    mount(spec, "/opt/ml", emptyDir={})
    return with_rows(spec, command, arguments)


def with_rows(spec: Document, command: list[str], arguments: Document) -> Document:
    """The job with one channel."""
    spec["training"] |= {"command": command, "arguments": arguments, "workingDirectory": "/scripts"}
    spec["workers"]["env"].append({"name": "SM_CHANNEL_TRAIN", "value": "/channels/rows"})
    mount(spec, "/channels/rows", configMap={"name": "rows"})
    return spec


def with_toolkit(lr: float, **variables: str) -> Document:
    """A job of the toolkit's `train`, which the environment's Python finds as a module."""
    arguments = {"sagemaker_program": "sagemaker_sum.py", "epochs": 2, "lr": lr}
    return in_opt_ml(["python3", "-m", "sagemaker_training.cli.train"], arguments, **variables)


def kept(job: Job) -> Path:
    """What the job has left on its claim."""
    claim = json.loads(job.kubectl("get", f"persistentvolumeclaim/{KEPT}", "--output=json"))
    volume = json.loads(job.kubectl("get", f"persistentvolume/{claim['spec']['volumeName']}", "--output=json"))
    (folder,) = Path(volume["spec"]["hostPath"]["path"]).glob(f"{job.name}-*/sagemaker")
    return folder


def test_the_toolkits_train_exchanges_over_pods_also_after_a_death(job: Callable[[str], Job]) -> None:
    """A script is killed after the exchange: its checkpoints are there again, and its model is kept on the claim."""
    one = job("toolkit").submit(**with_toolkit(0.1, DIE="1"))
    status = one.wait("Succeeded", 300)
    right = [line for line in said(one) if line.endswith("before=1")]
    assert sorted(right) == ["hosts=2 rank=0 total=30 before=1", "hosts=2 rank=1 total=30 before=1"]
    (line,) = status["restarts"]
    assert line["exit"] == "SIGKILL"
    model = {path.name: json.loads(path.read_text()) for path in (kept(one) / "model").iterdir()}
    assert model == {"part-0.json": 30, "part-1.json": 30}


def test_the_toolkits_failure_is_in_the_status(job: Callable[[str], Job]) -> None:
    status = job("wrong").submit(**with_toolkit(2.0)).wait("Failed", 300)
    assert "ValueError: bad learning rate" in status["message"]


@pytest.mark.parametrize("fails", ["", "1"])
def test_a_program_that_knows_the_folders_only(job: Callable[[str], Job], fails: str) -> None:
    """It has /opt/ml built in, and ends with 0 also where it has written output/failure."""
    spec = in_opt_ml(["sh", "/scripts/container.sh"], {"epochs": 3}, FOLDERS="/opt/ml", FAILS=fails)
    one = job(f"folders{fails}").submit(**spec, failurePolicy={"maxRestarts": 0})
    status = one.wait("Failed" if fails else "Succeeded", 300)
    if fails:
        assert "Exception during training: no rows in channel train" in status["restarts"][-1]["evidence"]
    else:
        assert (kept(one) / "model" / "weights.txt").read_text() == "weights\n"


def test_a_container_that_may_not_write_there_says_so(job: Callable[[str], Job]) -> None:
    spec = in_opt_ml(["sh", "/scripts/container.sh"], {"epochs": 3})
    spec["workers"]["volumes"].pop(-2)  # of /opt/ml
    spec["workers"]["volumeMounts"].pop(-2)
    status = job("closed").submit(**spec).wait("Failed", 300)
    assert "SageMaker's folder /opt/ml cannot be made (Permission denied" in status["message"]
    assert status.get("restartCount", 0) == 0
