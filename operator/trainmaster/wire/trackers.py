"""Define the table of trackers, to which a follower tells the lines of metrics.jsonl: one row for each.

How a tracker is spoken to is in the trainer: `trainmaster_trainer/trackers/`, one file for each row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple

# `https://host/path`, or what the library makes of a database or of Databricks.
_HOST = "([^/ :@,\\[\\]]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?(/[^ ]*)?"
SERVER_URL = f"https?://{_HOST}"
_LOGIN = "[^/ @]+@"
_DATABASE = "(sqlite|postgresql|mysql|mssql)([+][a-z0-9]+)?://[^ ]+|databricks(-uc)?(://[^ ]+)?"
MLFLOW_URL = f"https?://({_LOGIN})?{_HOST}|{_DATABASE}"

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


TRACKERS: Dict[str, TrackerTraits] = {
    "tensorBoard": TrackerTraits("TensorBoard"),
    "mlflow": TrackerTraits(
        "MLflow",
        variables=("MLFLOW_TRACKING_URI",),
        library="mlflow",
        install="pip install mlflow-skinny",
        urls={"MLFLOW_TRACKING_URI": MLFLOW_URL},
    ),
    "wandb": TrackerTraits(
        "Weights & Biases",
        variables=("WANDB_API_KEY", "WANDB_MODE"),
        disabling={"WANDB_MODE": ("disabled",), "WANDB_DISABLED": ("true", "1", "t")},
        library="wandb",
        install="pip install wandb",
        urls={"WANDB_BASE_URL": SERVER_URL},
    ),
    "openTelemetry": TrackerTraits(
        "OpenTelemetry",
        variables=("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        disabling={"OTEL_SDK_DISABLED": ("true",), "OTEL_METRICS_EXPORTER": ("none",)},
        urls={"OTEL_EXPORTER_OTLP_ENDPOINT": SERVER_URL, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": SERVER_URL},
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
            shown = re.sub(f"//{_LOGIN}", "//***@", value)  # a status is read by many
            return f"the variable {variable} is {shown!r:.200}, which is not the URL of a server"
    return ""
