"""Define spec.training.trackers: where the figures of a job are told beside its metrics.jsonl."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainmaster.api.model import Model, Place
from trainmaster.api.sizes import without_nul

_Title = Annotated[str, Field(min_length=1, max_length=250), AfterValidator(without_nul)]


class TensorBoard(Model):
    """Event files for TensorBoard. They are written by Trainmaster itself: no library is needed."""

    folder: Place | None = None
    """`folder` is where they are written, relative to the folder of metrics.jsonl. Unset: tensorboard beside it."""


class MLflow(Model):
    """A run of MLflow. The library mlflow (or mlflow-skinny) is that of the environment or image of the job."""

    url: Place | None = None
    """The tracking server, for example http://mlflow.tools:5000. Unset: the variable MLFLOW_TRACKING_URI."""
    experiment: _Title | None = None
    """The experiment that the run belongs to; it is made if there is none of this name. Unset: the variable \
MLFLOW_EXPERIMENT_NAME, else the name of the job."""


class Wandb(Model):
    """A run of Weights & Biases. The library wandb is that of the environment or image of the job."""

    url: Place | None = None
    """The server, where it is one of your own. Unset: the variable WANDB_BASE_URL, else the vendor's."""
    project: _Title | None = None
    """Unset: the variable WANDB_PROJECT, else the name of the job."""
    entity: _Title | None = None
    """The user or team. Unset: the variable WANDB_ENTITY, else that of the key."""
    mode: Literal["online", "offline"] | None = None
    """`mode` says whether figures are sent (the key is in the variable WANDB_API_KEY), or kept in the folder wandb \
beside metrics.jsonl for `wandb sync`. Unset: the variable WANDB_MODE, else online."""


class OpenTelemetry(Model):
    """Metrics of OpenTelemetry, sent by OTLP over HTTP (protobuf) by Trainmaster itself: no library is needed."""

    url: Place | None = None
    """The collector, for example http://collector:4318; /v1/metrics is added. Unset: the variable \
OTEL_EXPORTER_OTLP_ENDPOINT. OTEL_EXPORTER_OTLP_HEADERS holds headers, as keys of vendors."""


class Trackers(Model):
    """Figures are told to these trackers. An empty object is none, whatever variables are set."""

    tensor_board: TensorBoard | None = None
    """Event files for TensorBoard. {} is enough."""
    mlflow: MLflow | None = None
    """A run of MLflow."""
    wandb: Wandb | None = None
    """A run of Weights & Biases."""
    open_telemetry: OpenTelemetry | None = None
    """Metrics of OpenTelemetry."""

    @property
    def chosen(self) -> dict[str, dict[str, str]]:
        """Return the options of those that are set, by the name that they have in YAML."""
        told: dict[str, dict[str, str]] = self.to_dict()
        return told
