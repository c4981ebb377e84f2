"""A script of one's own in real pods, which loses no step when a rank or a pod is lost."""

from pathlib import Path

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


def test_a_script_with_state_loses_no_step_with_a_rank_nor_with_a_pod(job: Job) -> None:
    """Without any storage: what a lost pod had comes from the memory of the other one."""
    text = (Path(__file__).parents[1] / "local" / "scripts_with_state" / "usual.py").read_text()
    job.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script"}, "data": {"usual.py": text}})
    workers: Document = {
        "replicas": 2,
        "env": [{"name": "STEPS", "value": "100000"}, {"name": "SECONDS_A_STEP", "value": "0.05"}],
        "volumes": [{"name": "script", "configMap": {"name": "script"}}],
        "volumeMounts": [{"name": "script", "mountPath": "/script"}],
    }
    training = {"command": ["python3", "/script/usual.py"], "workingDirectory": "/tmp"}  # noqa: S108
    checkpoint = {"everySteps": 1000, "memoryEverySteps": 1}
    job.submit(training=training, workers=workers, checkpoint=checkpoint)
    job.wait_for_step(20)
    job.kill_rank("digits-worker-1-0")
    job.wait_for("jsonpath={.status.attempt}=2")
    job.goes_on()
    job.kubectl("delete", "pod", "digits-worker-1-0", "--grace-period=0", "--force")
    job.wait_for("jsonpath={.status.attempt}=3")
    status = job.goes_on()
    assert [line["stepsLost"] for line in status["restarts"]] == [0, 0]
    assert all(line["secondsLost"] < 100 for line in status["restarts"])
    assert status["incarnations"] == {"worker-1": 1}
