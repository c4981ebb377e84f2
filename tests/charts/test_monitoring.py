"""The chart's objects for Prometheus and Grafana: none unless asked for, and what the tables say."""

import json

import pytest
import yaml

from charts import monitoring

from .tools import CHART, Object, of_kind, render, the

ALL = [f"metrics.{part}.enabled=true" for part in ("podMonitor", "prometheusRule", "dashboards")]


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return render(*ALL, "networkPolicy.enabled=true", 'metrics.podMonitor.labels={"release":"prometheus"}')


def test_the_files_are_what_the_tables_say() -> None:
    found = {path.name: path.read_text() for path in (CHART / "files").iterdir()}
    assert found == monitoring.files(), "run make generate"


def test_the_pods_are_scraped_where_the_operator_serves(objects: list[Object]) -> None:
    (container,) = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--metrics=0.0.0.0:8083" in container["args"]
    assert {"name": "metrics", "containerPort": 8083} in container["ports"]
    monitor = the(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_rules_and_dashboards_arrive_whole(objects: list[Object]) -> None:
    """Their braces are Prometheus' and Grafana's, and nothing for Helm."""
    assert the(objects, "PrometheusRule")["spec"] == yaml.safe_load(monitoring.files()["alerts.yaml"])
    boards = {name: text for board in of_kind(objects, "ConfigMap") for name, text in board["data"].items()}
    assert {name: json.loads(text) for name, text in boards.items()} == {
        name: json.loads(text) for name, text in monitoring.files().items() if name.endswith(".json")
    }


def test_only_who_may_scrape_reaches_the_port(objects: list[Object]) -> None:
    (rule,) = [
        rule
        for rule in the(objects, "NetworkPolicy")["spec"]["ingress"]
        if {"port": "metrics", "protocol": "TCP"} in rule["ports"]
    ]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def test_nothing_of_it_is_there_unless_asked_for() -> None:
    kinds = {one["kind"] for one in render()}
    assert not kinds & {"PodMonitor", "PrometheusRule", "ConfigMap"}
    (container,) = the(render("metrics.enabled=false", *ALL), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert not [argument for argument in container["args"] if "metrics" in argument]
