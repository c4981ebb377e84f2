"""The volume of the checkpoints fills up under a job: it trains on, says so, and saves again when there is room.

The volume is a small tmpfs of this machine, which both nodes see; somebody else's file takes all that is left of it.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import WORKERS, paced
from tools.onebox import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Disk:
    """A small volume, and a file that takes all the room that is left."""

    folder: Path

    def fill(self) -> None:
        """Until not one byte more fits."""
        with (self.folder / "ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(bytes(4096)):
                    pass
            except OSError:
                pass

    def free(self) -> None:
        """There is room again."""
        (self.folder / "ballast").unlink()


@pytest.fixture
def disk(onebox: Cluster, namespace: str, tmp_path: Path) -> Iterator[Disk]:
    """A tmpfs of 4 MiB behind the claim `small`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=1777", "tmpfs", str(folder)], check=True)
    try:
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = {**common, "capacity": {"storage": "4Mi"}, "hostPath": {"path": str(folder)}}
        claim = {**common, "volumeName": namespace, "resources": {"requests": {"storage": "4Mi"}}}
        kinds = (("PersistentVolume", namespace, volume), ("PersistentVolumeClaim", "small", claim))
        for kind, name, spec in kinds:
            manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            onebox.kubectl("create", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(manifest))
        yield Disk(folder)
        onebox.kubectl("delete", "tj", "--all", f"--namespace={namespace}")
        onebox.kubectl("delete", "pv", namespace, "--wait=false")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_volume_costs_nothing_but_the_saves(cluster: Flavour, namespace: str, disk: Disk) -> None:
    job, undisturbed = Job(cluster, namespace), Job(cluster, namespace, name="undisturbed")
    storage = {"persistentVolumeClaim": {"claimName": "small"}}
    checkpoint = {"everySteps": 20, "storage": storage}
    job.submit(training=paced(seconds=0.1), workers=WORKERS, checkpoint=checkpoint)
    job.wait_for_step(40)
    disk.fill()
    status = job.wait_for("condition=CheckpointSaving=False")
    condition = job.condition("CheckpointSaving")
    assert condition["reason"] == "OutOfStorage"
    assert "No space left on device" in condition["message"]
    assert f"the newest good one is that of step {status['checkpoint']['step']}" in condition["message"]
    job.wait_for_event("CheckpointNotSaved")
    job.wait_for_step(status["progress"]["step"] + 40)
    assert "restarts" not in job.status() or job.status()["restarts"] == []
    disk.free()
    job.wait_for("condition=CheckpointSaving=True")
    saved = job.saves()
    assert job.events().count("CheckpointNotSaved") == 1
    assert job.status()["restartCount"] == 0
    job.kubectl("delete", "tj", job.name)
    undisturbed.submit(training=paced(saved["step"]), workers=WORKERS)
    expected = undisturbed.wait("Succeeded", 600)["checkpoint"]
    assert (saved["step"], saved["sha256"]) == (expected["step"], expected["sha256"])
