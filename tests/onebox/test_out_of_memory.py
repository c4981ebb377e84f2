"""A rank that outgrows its container's memory limit: the kernel ends it, and the ledger says so."""

import json

import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.operator_jobs import Job, without_torch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GREEDY = "held = []\nwhile True:\n    held.append(bytearray(16 << 20))\n"


def test_out_of_memory_by_the_limit_of_the_container(cluster: Flavour, namespace: str) -> None:
    job = Job(cluster, namespace)
    job.submit(
        strategy={"type": "OneDevice"},
        training={"command": ["python3", "-c", GREEDY]},
        workers={"replicas": 1, "memory": "512Mi", **without_torch(cluster)},
    )
    status = job.wait("Failed")
    assert {line["class"] for line in status["restarts"]} == {"OutOfMemory"}, json.dumps(status["restarts"], indent=1)
    assert "memory" in status["message"]
