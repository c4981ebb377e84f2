"""Scripts of TensorFlow in pods; those of JAX and XGBoost are in tests/onebox/test_frameworks.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.onebox.framework_jobs import said, start, wait_until_pods_have_ended
from tests.onebox.operator_jobs import Job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
# In the pod: a rank's process carries this name.
KILL = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    if open(f"/proc/{pid}/comm").read().startswith("tm-rank"):
        os.kill(int(pid), signal.SIGKILL)
        print("killed", pid)
"""


def test_workers_go_on_from_tensorflows_own_checkpoint_on_the_claim(job: Callable[[str], Job]) -> None:
    one = start(job("mirrored"), "TensorFlow", "tensorflow", "/scripts/tensorflow_mirrored.py", DIE_IN_ATTEMPT="1")
    status = one.wait("Succeeded", 400)
    assert said(one) == ["processes=2 from=20"] * 2
    assert [line["exit"] for line in status["restarts"]] == ["SIGKILL"]


def test_a_server_that_is_killed_and_a_chief_that_ends_the_job(job: Callable[[str], Job]) -> None:
    one = job("served")
    start(one, "TensorFlow", "tensorflow", "/scripts/tensorflow_servers.py", servers=2, ENDLESS_ATTEMPT="1")
    one.wait("Running")
    until = time.monotonic() + 400
    while not said(one, "HALFWAY"):
        assert time.monotonic() < until, one.status()
        time.sleep(0.5)  # a log calls nobody when it grows
    killed = one.kubectl("exec", "served-parameterserver-1-0", "--container=trainer", "--", "python3", "-c", KILL)
    assert "killed" in killed
    status = one.wait("Succeeded", 400)
    assert said(one) == ["shards=2"]
    assert status["message"].startswith("worker-0, which leads the others, finished.")
    (line,) = status["restarts"]
    assert (line["exit"], line["replica"]) == ("SIGKILL", "parameterServer-1 rank 3")
    wait_until_pods_have_ended(one)


def test_a_script_that_fails_in_a_pod_says_why_in_the_status(job: Callable[[str], Job]) -> None:
    program = "import tensorflow; raise ValueError('bad learning rate')"
    status = start(job("wrong"), "TensorFlow", "tensorflow", "-c", program).wait("Failed", 400)
    assert "ValueError: bad learning rate" in status["message"]
