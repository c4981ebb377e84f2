"""Define the table of trackers, to which a follower tells the lines of metrics.jsonl: one row for each.

How a tracker is spoken to is in the trainer: `trainmaster_trainer/trackers/`, one file for each row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple

# `https://host/path`; or what MLflow's library takes for a database, for Databricks or for a folder.
_HOST = "([^/ :@,\\[\\]]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?(/[^ ]*)?"
SERVER_URL = f"https?://{_HOST}"
_LOGIN = "[^/ @]+@"
_DATABASE = "(sqlite|postgresql|mysql|mssql)([+][a-z0-9]+)?://[^ ]+|databricks(-uc)?(://[^ ]+)?"
_FOLDER = "file:.+|\\.{0,2}/[^/].*"
MLFLOW_URL = f"https?://({_LOGIN})?{_HOST}|{_DATABASE}|{_FOLDER}"

WANDB_PROJECT = r"[^/\\#?%:]{1,128}"

Options = Mapping[str, str]


@dataclass(frozen=True)
class TrackerTraits:
    """Hold what is true of a tracker."""

    title: str
    """How messages call it."""
    variables: Tuple[str, ...] = ()
    """It is told of a job where one of these is set, and `spec.training.trackers` is not."""
    disabling: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    """Values of variables that say that it is not wanted."""
    library: str = ""
    """The module of the user's environment that is used; empty: none is needed."""
    install: str = ""
    """The command that installs it."""
    urls: Mapping[str, str] = field(default_factory=dict)
    """Variables that hold a URL, and its pattern."""
    cures: Mapping[str, str] = field(default_factory=dict)
    """What its library's errors say, as a pattern, and what to do then."""


_SECRET = "in a pod from a Secret by spec.workers.env"

TRACKERS: Dict[str, TrackerTraits] = {
    "tensorBoard": TrackerTraits("TensorBoard"),
    "mlflow": TrackerTraits(
        "MLflow",
        variables=("MLFLOW_TRACKING_URI",),
        library="mlflow",
        install="pip install mlflow-skinny",
        urls={"MLFLOW_TRACKING_URI": MLFLOW_URL},
        cures={
            r"error code 40[13]\b|UNAUTHENTICATED|PERMISSION_DENIED": (
                "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, right; " + _SECRET
            ),
            r"UnsupportedModelRegistryStoreURI": "a database needs the whole library: pip install mlflow",
            r"MLFLOW_ALLOW_FILE_STORE": (
                "set MLFLOW_TRACKING_URI to a database, such as sqlite:////data/mlflow.db, or MLFLOW_ALLOW_FILE_STORE "
                "to true"
            ),
            r"error code (404|405)\b|not in a valid JSON": (
                "there is no MLflow server: correct url in spec.training.trackers.mlflow, or MLFLOW_TRACKING_URI"
            ),
        },
    ),
    "wandb": TrackerTraits(
        "Weights & Biases",
        variables=("WANDB_API_KEY", "WANDB_MODE"),
        disabling={"WANDB_MODE": ("disabled",), "WANDB_DISABLED": ("true", "1", "t")},
        library="wandb",
        install="pip install wandb",
        urls={"WANDB_BASE_URL": SERVER_URL},
        cures={
            r"(?i)api.key|error 40[13]\b|permission denied": f"set WANDB_API_KEY right, {_SECRET}; or mode: offline",
            r"error 40[45]\b": "no such server is there: correct url in spec.training.trackers.wandb or WANDB_BASE_URL",
        },
    ),
    "openTelemetry": TrackerTraits(
        "OpenTelemetry",
        variables=("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        disabling={"OTEL_SDK_DISABLED": ("true",), "OTEL_METRICS_EXPORTER": ("none",)},
        urls={"OTEL_EXPORTER_OTLP_ENDPOINT": SERVER_URL, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": SERVER_URL},
        cures={
            r"answers 40[13]\b": f"set OTEL_EXPORTER_OTLP_HEADERS, such as authorization=Basic%20..., {_SECRET}",
            r"answers 40[45]\b|BadStatusLine": (
                "url is that of the collector's port for HTTP, mostly 4318, and without /v1/metrics"
            ),
        },
    ),
}


def chosen(asked: Optional[Mapping[str, Options]], environment: Mapping[str, str]) -> Dict[str, Options]:
    """Return the trackers of a job, with their options. `asked` is what the spec says; None: it says nothing."""
    if asked is not None:
        return {name: options for name, options in asked.items() if name in TRACKERS}
    return {name: {} for name, traits in TRACKERS.items() if _is_wanted(traits, environment)}


def _is_wanted(traits: TrackerTraits, environment: Mapping[str, str]) -> bool:
    disabled = any(environment.get(name, "").lower() in values for name, values in traits.disabling.items())
    return not disabled and any(environment.get(name) for name in traits.variables)


def bad_url(name: str, environment: Mapping[str, str]) -> str:
    """Return which of a tracker's variables holds no URL, in a sentence; empty where none does."""
    for variable, pattern in TRACKERS[name].urls.items():
        value = environment.get(variable)
        if value and not re.fullmatch(pattern, value):
            return f"the variable {variable} is {without_login(value)!r:.200}, which is not the URL of a server"
    return ""


def without_login(text: str) -> str:
    """Return a text without names and passwords in its URLs: a status is read by many."""
    return re.sub(f"//{_LOGIN}", "//***@", text)


def cure(name: str, error: str) -> str:
    """Return what to do about an error of a tracker's library; empty where that is not known."""
    return next((what for pattern, what in TRACKERS[name].cures.items() if re.search(pattern, error)), "")
