"""Which trackers a job has: what its spec says, else what people set anyway."""

from __future__ import annotations

import pytest
from trainmaster.wire import trackers


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, []),
        ({"MLFLOW_TRACKING_URI": "http://a"}, ["mlflow"]),
        ({"MLFLOW_TRACKING_URI": ""}, []),
        ({"WANDB_MODE": "offline"}, ["wandb"]),
        ({"WANDB_API_KEY": "key", "WANDB_MODE": "disabled"}, []),
        ({"WANDB_API_KEY": "key", "WANDB_DISABLED": "True"}, []),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a"}, ["openTelemetry"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "none"}, []),
    ],
)
def test_variables_that_people_set_choose(environment: dict[str, str], wanted: list[str]) -> None:
    assert [*trackers.chosen(None, environment)] == wanted


def test_what_the_spec_says_goes_before_variables() -> None:
    environment = {"MLFLOW_TRACKING_URI": "http://a"}
    assert trackers.chosen({}, environment) == {}
    assert trackers.chosen({"wandb": {"mode": "offline"}}, environment) == {"wandb": {"mode": "offline"}}


@pytest.mark.parametrize(
    "url",
    [
        "http://a:5000",
        "https://a/b",
        "https://me:word@a:5000/b",
        "http://[::1]:5000",
        "http://10.0.0.1",
        "sqlite:///a.db",
        "databricks",
        "databricks://profile",
        "file:///data/mlruns",
        "file:mlruns",
        "/data/my runs",
        "./mlruns",
        "../mlruns",
    ],
)
def test_urls_that_mlflow_knows(url: str) -> None:
    assert trackers.bad_url("mlflow", {"MLFLOW_TRACKING_URI": url}) == ""


@pytest.mark.parametrize(
    "url", ["http://a:5OOO", "http://a,b", "http://[::1", "http://me:word@a", "http://a:", "http:a"]
)
def test_urls_that_lead_nowhere(url: str) -> None:
    said = trackers.bad_url("wandb", {"WANDB_BASE_URL": url})
    assert "is not the URL of a server" in said
    assert "word" not in said  # what is said is in the job's status


def test_a_variable_that_is_no_url_is_named() -> None:
    said = trackers.bad_url("openTelemetry", {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"})
    assert said == "the variable OTEL_EXPORTER_OTLP_ENDPOINT is 'collector:4318', which is not the URL of a server"


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("mlflow", "API request to endpoint /api failed with error code 401 != 200.", "MLFLOW_TRACKING_PASSWORD"),
        ("mlflow", "PERMISSION_DENIED: Permission denied", "MLFLOW_TRACKING_PASSWORD"),
        ("mlflow", "API request to endpoint /api failed with error code 404 != 200.", "correct url in"),
        ("mlflow", "RESOURCE_DOES_NOT_EXIST: No experiment with id 401", ""),
        (
            "mlflow",
            "MlflowException: The filesystem ... set `MLFLOW_ALLOW_FILE_STORE=true`",
            "sqlite:////data/mlflow.db",
        ),
        ("wandb", "api_key not configured (no-tty)", "set WANDB_API_KEY right"),
        ("wandb", "Failed to get resume status for run u1: returned error 404: {}", "WANDB_BASE_URL"),
        ("openTelemetry", "http://c:4318/v1/metrics answers 403 Forbidden: ", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("openTelemetry", "http://c:4317/v1/metrics answers 404 Not Found: ", "mostly 4318"),
        ("tensorBoard", "FileExistsError: 401", ""),
    ],
)
def test_an_error_of_a_library_that_is_known_has_a_cure(name: str, said: str, expected: str) -> None:
    cure = trackers.cure(name, said)
    assert expected in cure
    assert bool(expected) == bool(cure)


def test_a_password_in_a_url_is_not_told() -> None:
    assert trackers.without_login("GET https://me:secret@host/a failed") == "GET https://***@host/a failed"
