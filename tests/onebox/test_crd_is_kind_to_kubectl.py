"""What people see with kubectl: explain, columns, scale, status."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase

from tests.api.changes import changed, good_job
from tests.api.test_status import FULL
from tests.onebox.crd_server import Cluster, CrdServer, crd_server

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[CrdServer]:
    with crd_server(cluster) as server:
        job = changed(good_job(), {"spec.suspend": True})
        server.kubectl("create", "--filename=-", stdin=json.dumps(job))
        yield server


@pytest.fixture(scope="module")
def finished(server: CrdServer) -> None:
    """A full status that no operator touches again, should one watch. Until it is read it may still write its own."""
    patch = json.dumps({"status": dataclasses.replace(FULL, phase=Phase.SUCCEEDED).to_dict()})
    for _ in range(20):
        server.kubectl("patch", "tj", "digits", "--subresource=status", "--type=merge", f"--patch={patch}")
        if server.kubectl("get", "tj", "digits", "--output=jsonpath={.status.phase}") == "Succeeded":
            return
    pytest.fail("somebody changes the status of a job that has ended")


def test_explain(server: CrdServer) -> None:
    """Every level has its description."""
    text = server.kubectl("explain", "tj.spec.strategy.parameterServer.maxStaleness")

    assert "FIELD: maxStaleness <integer>" in text
    assert "how many steps the fastest worker may be ahead" in text
    assert "samples per step over all workers" in server.kubectl("explain", "trainingjob.spec.training")


def test_status_round_trip(server: CrdServer) -> None:
    """The status that the core writes is accepted whole and read back the same."""
    patch = json.dumps([{"op": "add", "path": "/status", "value": FULL.to_dict()}])
    words = ("--subresource=status", "--type=json", f"--patch={patch}", "--dry-run=server", "--output=json")

    assert TrainingJob.parse(json.loads(server.kubectl("patch", "tj", "digits", *words))).status == FULL


def test_columns(server: CrdServer, finished: None) -> None:
    """The same with `-o wide`, and a few more."""
    head, row = server.kubectl("get", "tj", "digits", "--output=wide").splitlines()

    assert head.split() == [
        *("NAME", "STRATEGY", "PHASE", "WORKERS", "STEP", "LOSS", "RESTARTS", "ETA", "AGE"),
        *("EVALUATION", "CHECKPOINT", "SAMPLES/S", "GOODPUT", "SERVERS", "FRAMEWORK", "MESSAGE"),
    ]
    assert row.split()[:8] == ["digits", "AllReduce", "Succeeded", "3/4", "120/500", "0.1235", "1", "3m"]
    assert row.split()[9:11] == ["100", "1000"]
    assert row.split()[-2:] == ["Torch", "training"]


def scale_of(server: CrdServer, job: str) -> Any:
    return json.loads(server.kubectl("get", "tj", job, "--subresource=scale", "--output=json"))


def test_scale(server: CrdServer, finished: None) -> None:
    """`kubectl scale` and autoscalers change the number of workers and nothing else."""
    other = changed(good_job(), {"spec.suspend": True, "metadata.name": "scaled"})
    server.kubectl("create", "--filename=-", stdin=json.dumps(other))
    server.kubectl("scale", "tj", "scaled", "--replicas=6")

    assert scale_of(server, "scaled")["spec"] == {"replicas": 6}
    assert scale_of(server, "digits")["status"] == {"replicas": 3, "selector": "trainmaster.dev/job=a"}


def test_a_spec_change_leaves_the_status(server: CrdServer) -> None:
    """They are two doors."""
    server.kubectl("patch", "tj", "digits", "--type=merge", '--patch={"status": {"phase": "Failed"}}')

    assert server.kubectl("get", "tj", "digits", "--output=jsonpath={.status.phase}") != "Failed"


def test_age_is_a_date(server: CrdServer) -> None:
    """The API server's own time, so that a future operator can reckon with it."""
    created = server.kubectl("get", "tj", "digits", "--output=jsonpath={.metadata.creationTimestamp}")

    assert datetime.fromisoformat(created).tzinfo == UTC


def test_in_all(server: CrdServer) -> None:
    """`kubectl get all` shows it."""
    assert "trainingjob.trainmaster.dev/digits" in server.kubectl("get", "all", "--output=name")
