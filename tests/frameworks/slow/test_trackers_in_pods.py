"""Followers in pods: event files and offline files on the claim, a server of MLflow and a collector outside of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.slow import test_trackers_of_libraries as libraries
from tests.frameworks.trackers import a_collector, a_server_of_mlflow, kept
from tests.onebox.framework_jobs import a_spec, folder_of
from tests.onebox.operator_jobs import Job
from tests.onebox.paced import Document
from tools.onebox.paths import GATEWAY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def told(job: Job, trackers: Document) -> Job:
    """Submit the script that is killed after step 30 and goes on from step 20, with these trackers."""
    spec = a_spec("Torch", "trackers", "/scripts/tracked.py", LINGER="3")
    spec["training"]["trackers"] = trackers
    return job.submit(**spec)


def test_each_tracker_is_told_from_a_pod_with_every_step_after_a_restart(
    job: Callable[[str], Job], tmp_path: Path
) -> None:
    """As on one machine: one run, and what the restart cut off once more under the same steps."""
    with a_server_of_mlflow(tmp_path, GATEWAY) as mlflow, a_collector(tmp_path / "otlp", GATEWAY) as collector:
        trackers = {
            "tensorBoard": {},
            "mlflow": {"url": mlflow},
            "wandb": {"mode": "offline"},
            "openTelemetry": {"url": collector},
        }
        one = told(job("torch"), trackers)
        assert one.wait("Succeeded", 400)["restartCount"] == 1
        assert one.condition("TrackersReached").get("status", "True") == "True"
        pods = "--selector=trainmaster.dev/job=torch"
        one.kubectl("wait", "pods", pods, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
        libraries.assert_event_files(kept("tensorboard", folder_of(one) / "tensorboard"))
        libraries.assert_run_of_mlflow(kept("mlflow", mlflow), "AllReduce")
        libraries.assert_offline_files(kept("wandb", folder_of(one) / "wandb"), "AllReduce")
        libraries.assert_what_was_sent(kept("otlp", tmp_path / "otlp"), f"{one.namespace}/torch")


def test_a_tracker_that_is_away_is_one_condition_of_the_job(job: Callable[[str], Job]) -> None:
    """And costs no step: nobody listens at port 9."""
    away = {"mlflow": {"url": f"http://{GATEWAY}:9"}}
    one = told(job("away"), away)
    assert one.wait("Succeeded", 400)["progress"]["step"] == 40
    found = one.condition("TrackersReached")
    assert (found["status"], found["reason"]) == ("False", "TrackerUnreachable")
    assert found["message"].startswith("MLflow: ")
