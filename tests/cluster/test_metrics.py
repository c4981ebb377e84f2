"""What Prometheus reads from a real operator, and that alerts and dashboards ask for nothing else."""

import gc
import re
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from trainmaster.cluster import jobs
from trainmaster.cluster.metrics import page
from trainmaster.cluster.metrics.instruments import Instruments

from charts.monitoring import ALERTS, FLEET, JOB
from tests.builders import NOON, a_job

from .lab import Lab

EXPRESSIONS = [panel.expression for panel in (*FLEET, *JOB)] + [alert.expression for alert in ALERTS]


def values(lab: Lab, name: str, **labels: str) -> list[float]:
    """The samples of a metric that have these labels."""
    samples = [sample for family in parse(lab.operator.metrics()) for sample in family.samples if sample.name == name]
    return [sample.value for sample in samples if labels.items() <= sample.labels.items()]


def until(lab: Lab, expected: list[float], name: str, **labels: str) -> None:
    """Wait until the samples are these: a page may be a second old."""
    deadline = time.monotonic() + 100
    while values(lab, name, **labels) != expected:
        assert time.monotonic() < deadline, (name, values(lab, name, **labels), expected)
        time.sleep(0.2)


def test_a_job_and_the_operator_are_told(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    lab.start_training("digits-worker-0-0", "digits-worker-1-0")
    lab.await_phase("Running")
    mine = {"namespace": lab.namespace, "job": "digits"}
    until(lab, [1.0], "trainmaster_job_phase", phase="Running", **mine)
    assert len(values(lab, "trainmaster_job_phase", **mine)) == 1
    until(lab, [1.0], "trainmaster_job_info", strategy="AllReduce", program="task", **mine)
    until(lab, [2.0], "trainmaster_job_workers", state="ready", **mine)
    until(lab, [-1.0], "trainmaster_job_straggler_rank", **mine)
    until(lab, [1.0], "trainmaster_leader")
    assert values(lab, "trainmaster_heartbeats_total", code="200")[0] > 0
    assert values(lab, "trainmaster_api_requests_total", verb="post", resource="pods", code="201")[0] >= 2
    assert values(lab, "trainmaster_api_requests_total", verb="patch", resource="trainingjobs/status", code="200")
    assert values(lab, "trainmaster_reconcile_duration_seconds_count")[0] > 0


def test_labels_are_words_of_fixed_lists_whatever_a_status_says(lab: Lab) -> None:
    """Whoever may edit a status must not fill Prometheus with labels."""
    lines = [
        {"attempt": number, "time": NOON.isoformat(), "class": f"Mine{number}", "stepsLost": 3, "secondsLost": 0.5}
        for number in range(20)
    ]
    lab.submit("edited", suspend=True)
    lab.await_phase("Suspended", "edited")
    lab.patch_job({"status": {"restarts": lines}}, "edited", "/status")
    until(lab, [20.0], "trainmaster_job_failures", job="edited", **{"class": "Other"})
    until(lab, [60.0], "trainmaster_job_lost_steps", job="edited")


def test_a_job_that_is_long_over_is_only_counted(lab: Lab) -> None:
    for name, hours in (("old", 1), ("new", 0)):
        lab.submit(name, suspend=True)
        lab.await_phase("Suspended", name)
        ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600 * hours))
        lab.patch_job({"status": {"phase": "Failed", "completionTime": ended}}, name, "/status")
    until(lab, [1.0], "trainmaster_job_phase", namespace=lab.namespace, job="new", phase="Failed")
    until(lab, [], "trainmaster_job_phase", namespace=lab.namespace, job="old")
    assert values(lab, "trainmaster_jobs", phase="Failed")[0] >= 2


def test_a_page_of_many_jobs_holds_up_nothing_by_the_garbage_collector() -> None:
    """A full round of it stops all threads, the one that answers heartbeats included."""
    goodput = {"waiting": 1.0, "starting": 2.0, "training": 1000.0, "saving": 1.0, "recovering": 3.0}
    builders = (a_job().named(f"job-{number}").at("Running", goodput=goodput) for number in range(500))
    documents = [{"metadata": one.metadata, "spec": one.spec, "status": one.status} for one in builders]
    records = [jobs.read(document) for document in documents]
    instruments = Instruments()
    first = page._make(instruments, records)
    rounds: list[int] = []
    gc.callbacks.append(note := lambda phase, info: rounds.append(info["generation"]) if phase == "stop" else None)
    try:
        assert len(page._make(instruments, records)) == pytest.approx(len(first), rel=0.01)
    finally:
        gc.callbacks.remove(note)
    assert len(rounds) <= 1
    samples = [sample for family in parse(first.decode()) for sample in family.samples]
    assert sum(sample.name == "trainmaster_job_goodput_seconds" for sample in samples) == 500 * 6


def test_alerts_and_dashboards_name_metrics_that_are_there(lab: Lab) -> None:
    families = set(re.findall(r"^# TYPE (\w+) ", lab.operator.metrics(), re.MULTILINE))
    asked = {name for text in EXPRESSIONS for name in re.findall(r"\b(?:trainmaster|process)_[a-z_]+", text)}
    assert len(asked) > 20
    assert {name for name in asked if not {name, name.removesuffix("_bucket"), f"{name}_total"} & families} == set()
