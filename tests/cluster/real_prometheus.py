"""`make test-prometheus`: a real Prometheus scrapes a real operator, and every alert and panel gets an answer."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import monitoring
from charts.monitoring import ALERTS, FLEET, JOB
from tests.builders import NOON
from tests.ports import free_port
from tools.onebox import binaries

from .lab import Lab

RULES = monitoring.FOLDER / "alerts.yaml"
SECONDS = 60.0


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    binaries.ensure(binaries.PROMETHEUS)


class Prometheus:
    """A server that scrapes one operator each second."""

    def __init__(self, folder: Path, target: str) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "operator", "honor_labels": True, "static_configs": [{"targets": [target]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [str(binaries.path("prometheus")), f"--config.file={folder}/prometheus.yml"]
        command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self._address}"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer; None while nobody answers."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return json.loads(response.read())["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it is still starting
                return None
            raise
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                return None
            raise

    def until(self, expression: str) -> list[Any]:
        """Return the answer to an expression, once there is one."""
        deadline = time.monotonic() + SECONDS
        while not (data := self.ask("query", query=expression)) or not data["result"]:
            assert time.monotonic() < deadline, (expression, data)
            time.sleep(0.2)
        return list(data["result"])


@pytest.fixture
def prometheus(lab: Lab, tmp_path: Path) -> Iterator[Prometheus]:
    one = Prometheus(tmp_path, f"127.0.0.1:{lab.operator.metrics_port}")
    yield one
    one.process.terminate()
    one.process.wait(20)


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        [binaries.path("promtool"), "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_promtool_finds_nothing_to_say_about_the_page(lab: Lab) -> None:
    lab.submit(workers={"replicas": 2})
    lab.await_pods("digits-worker-0-0", "digits-worker-1-0")
    page = lab.operator.metrics()
    done = subprocess.run(
        [binaries.path("promtool"), "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


STATUS = {
    "progress": {
        "step": 40, "totalSteps": 100, "loss": 0.5, "samplesPerSecond": 10.0, "eta": "1m00s", "waiting": {"data": 0.2}
    },
    "checkpoint": {"step": 20, "time": NOON.isoformat(), "seconds": 0.5},
    "restarts": [
        {"attempt": 1, "time": NOON.isoformat(), "class": "Signal", "stepsLost": 3, "secondsLost": 0.5}
    ],
}  # fmt: skip


def test_every_panel_gets_an_answer_and_every_alert_is_evaluated(lab: Lab, prometheus: Prometheus) -> None:
    lab.submit(suspend=True, checkpoint={"storage": {"persistentVolumeClaim": {"claimName": "models"}}})
    lab.await_phase("Suspended")
    lab.patch_job({"status": STATUS}, sub="/status")
    lab.submit("beating")
    lab.await_pods_of("beating", "beating-worker-0-0")
    lab.start_training("beating-worker-0-0")
    prometheus.until("up")
    for panel in (*FLEET, *JOB):
        expression = panel.expression.replace("$namespace", lab.namespace).replace("$job", "digits")
        assert prometheus.ask("query", query=expression)["resultType"] == "vector", panel.title
        # There were no errors and no failures, and who is suspended has no time of arrival.
        if not re.search("_errors_|failures_total|eta_seconds", expression):
            assert prometheus.until(expression), panel.title
    groups = prometheus.ask("rules")["groups"]
    rules = {rule["name"]: (rule["health"], rule.get("lastError")) for group in groups for rule in group["rules"]}
    assert rules == {alert.name: ("ok", None) for alert in ALERTS}


def test_a_failed_job_raises_its_alert(lab: Lab, prometheus: Prometheus) -> None:
    lab.submit(suspend=True)
    lab.await_phase("Suspended")
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lab.patch_job({"status": {"phase": "Failed", "completionTime": ended}}, sub="/status")
    found = prometheus.until(
        f'ALERTS{{alertname="TrainmasterJobFailed",alertstate="firing",namespace="{lab.namespace}"}}'
    )
    assert found[0]["metric"]["job"] == "digits"
