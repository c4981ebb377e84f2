"""Jobs that train in real pods, and go on when ranks and pods die."""

import json
from pathlib import Path

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import DIGITS, ENDLESS, Document

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def job(cluster: Flavour, namespace: str) -> Job:
    return Job(cluster, namespace)


def test_a_job_trains_in_pods(job: Job) -> None:
    job.submit()
    status = job.wait("Succeeded")
    assert status["progress"]["step"] == DIGITS["steps"]
    assert status["checkpoint"]["step"] == DIGITS["steps"]
    assert (status["attempt"], status["restartCount"]) == (1, 0)
    assert status["progress"]["loss"] < 0.5
    job.kubectl("wait", "pods", "--all", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=200s")
    assert "AllWorkersFinished" in job.events()
    assert "Finished" in job.kubectl("logs", "digits-worker-0-0"), "a finished job's pods stay, for their logs"


def test_a_rank_that_is_killed_costs_no_pod(job: Job) -> None:
    job.submit(training=ENDLESS)
    job.wait_for_step(20)
    before = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    job.kill_rank("digits-worker-1-0")
    job.wait_for("jsonpath={.status.attempt}=2")
    status = job.goes_on()
    (entry,) = status["restarts"]
    assert (entry["class"], entry["exit"]) == ("Signal", "SIGKILL")
    assert entry["secondsLost"] > 0
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == before


def test_a_deleted_pod_is_replaced(job: Job) -> None:
    job.submit(training=ENDLESS)
    job.wait_for_step(20)
    job.kubectl("delete", "pod", "digits-worker-1-0", "--wait=false")
    job.wait_for("jsonpath={.status.attempt}=2")
    status = job.goes_on()
    assert status["incarnations"] == {"worker-1": 1}
    assert [entry["class"] for entry in status["restarts"]] == ["ReplicaDeleted"]


def test_all_pods_lost_and_the_claim_has_the_checkpoints(job: Job) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    job.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": spec})
    storage = {"persistentVolumeClaim": {"claimName": "models"}}
    job.submit(training=ENDLESS, checkpoint={"everySteps": 10, "storage": storage})
    job.wait_for_step(40)
    job.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    job.wait_for("jsonpath={.status.attempt}=2")
    status = job.goes_on()
    (entry,) = status["restarts"]
    assert status["attempt"] == 2
    assert entry["stepsLost"] < entry["step"], "it went on from a checkpoint"
    job.saves()


SCRIPT = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), flush=True)
assert total.item() == 3.0
dist.destroy_process_group()
"""


def test_a_script_of_ones_own_from_a_config_map_by_template(job: Job) -> None:
    """Untouched torch code, mounted by what the template says."""
    job.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script"}, "data": {"train.py": SCRIPT}})
    template = {
        "spec": {
            "volumes": [{"name": "script", "configMap": {"name": "script"}}],
            "containers": [{"name": "trainer", "volumeMounts": [{"name": "script", "mountPath": "/script"}]}],
        }
    }
    job.submit(training={"command": ["python3", "/script/train.py"]}, workers={"replicas": 2, "template": template})
    job.wait("Succeeded")
    assert "sum 3.0 of 2" in job.kubectl("logs", "digits-worker-0-0")


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


def test_an_image_of_ones_own_gets_the_agent(job: Job) -> None:
    """The operator's image has Python and nothing of the trainer's: the agent is brought in."""
    words = ("get", "deployment", "trainmaster", "--namespace=trainmaster-system", "--output=json")
    deployment = json.loads(job.cluster.kubectl(*words))
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    training = {"command": ["python3", "-c", "import os; print('rank', os.environ['RANK'])"]}
    job.submit(training=training, workers={"replicas": 2, "image": image, "imagePullPolicy": "IfNotPresent"})
    job.wait("Succeeded")
    assert "rank 1" in job.kubectl("logs", "digits-worker-1-0", "--container=trainer")
