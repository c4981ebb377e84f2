"""Hold the rules on spec.training.trackers: URLs that no tracker can be reached at."""

from __future__ import annotations

from trainmaster.api.rules.rule import shaped
from trainmaster.wire.trackers import MLFLOW_URL, SERVER_URL, WANDB_PROJECT

_HERE = "spec.training.trackers"

RULES = (
    shaped(
        "mlflow-url",
        (f"{_HERE}.mlflow",),
        "url",
        MLFLOW_URL,
        message="url is not that of a tracking server of MLflow",
        cure="Write it like http://mlflow.tools:5000, or sqlite:////data/mlflow.db",
    ),
    shaped(
        "wandb-url",
        (f"{_HERE}.wandb",),
        "url",
        SERVER_URL,
        message="url is not that of a server of Weights & Biases",
        cure="Write it like https://wandb.example.com, or remove it for the vendor's",
    ),
    shaped(
        "wandb-project",
        (f"{_HERE}.wandb",),
        "project",
        WANDB_PROJECT,
        message="project is no name that Weights & Biases takes",
        cure="Write at most 128 characters, and none of / \\ # ? % :",
    ),
    shaped(
        "open-telemetry-url",
        (f"{_HERE}.openTelemetry",),
        "url",
        SERVER_URL,
        message="url is not that of a collector",
        cure="Write it like http://collector:4318; a password is for the variable OTEL_EXPORTER_OTLP_HEADERS",
    ),
)
