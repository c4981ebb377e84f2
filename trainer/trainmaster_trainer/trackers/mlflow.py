"""Keep a run of MLflow, through the user's own library mlflow.

The run is known by the job's uid, so that a follower that has lost its state finds it again. A point that is told twice
is the same row twice, which MLflow keeps once: name, time, step and value are all equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from trainmaster_trainer.trackers.points import ATTEMPT, Point, TrackedJob

_UID, _RESTARTS = "trainmaster.uid", "trainmaster.restarts"
_AT_ONCE = 1000  # metrics of a request; and in each, so many parameters:
_PARAMETERS_AT_ONCE = 100
_LONGEST_VALUE = 6000
_ENDS = {"finished": "FINISHED", "failed": "FAILED", "left": "KILLED"}
# The library waits for minutes otherwise; here the file keeps the lines meanwhile.
_DEFAULTS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class MLflowRun:
    """MLflowRun speaks to the tracking server."""

    def __init__(self, subject: TrackedJob) -> None:
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # noqa: PLC0415 it takes seconds, and may not be there

        self._subject = subject
        self._client: Any = MlflowClient(tracking_uri=subject.options.get("url"))
        self._run = ""
        self._attempt = 0  # that was told last

    def begin(self, run: str) -> str:  # noqa: ARG002 the tag tells it too, and whether it is still there
        """Find the run of this job, or make it."""
        client, subject = self._client, self._subject
        experiment = self._experiment()
        found = client.search_runs([experiment], f"tags.`{_UID}` = '{subject.uid}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            client.set_terminated(self._run, "RUNNING")
        else:
            tags = {_UID: subject.uid, _RESTARTS: "0", **_tags(subject)}
            self._run = client.create_run(experiment, tags=tags, run_name=subject.name).info.run_id
        self._tell_parameters()
        return self._run

    def cut(self, step: int) -> None:
        """Do nothing: what is told once more of a step is drawn at the same step."""

    def tell(self, points: Sequence[Point]) -> None:
        """Log the figures as metrics."""
        from mlflow.entities import Metric  # noqa: PLC0415

        metrics = [
            Metric(_allowed(name), value, round(point.time * 1000), point.step)
            for point in points
            for name, value in self._figures(point).items()
        ]
        for first in range(0, len(metrics), _AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[first : first + _AT_ONCE])

    def restarted(self, point: Point) -> None:
        """Count the restart in a tag, and say in another where it went on."""
        self._client.set_tag(self._run, _RESTARTS, str(point.attempt - 1))
        self._client.set_tag(self._run, f"trainmaster.attempt.{point.attempt}", f"began with step {point.step}")

    def finish(self, end: str) -> None:
        """Say how the run has ended."""
        self._client.set_terminated(self._run, _ENDS[end])

    def _experiment(self) -> str:
        name = self._subject.options.get("experiment") or os.environ.get("MLFLOW_EXPERIMENT_NAME") or self._subject.name
        known = os.environ.get("MLFLOW_EXPERIMENT_ID", "") if "experiment" not in self._subject.options else ""
        if known:
            return known
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _tell_parameters(self) -> None:
        from mlflow.entities import Param  # noqa: PLC0415

        known = self._client.get_run(self._run).data.params
        missing = {_allowed(name): value for name, value in self._subject.parameters.items()}
        missing = {name: value for name, value in missing.items() if name not in known}
        params = [Param(name, value[:_LONGEST_VALUE]) for name, value in missing.items()]
        for first in range(0, len(params), _PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run, params=params[first : first + _PARAMETERS_AT_ONCE])

    def _figures(self, point: Point) -> dict[str, float]:
        """Return the figures of a point, and with the first of an attempt its number."""
        is_first, self._attempt = point.attempt != self._attempt, point.attempt
        return {**point.figures, ATTEMPT: float(point.attempt)} if is_first else {**point.figures}


def _tags(subject: TrackedJob) -> dict[str, str]:
    parameters = subject.parameters
    told = {
        "mlflow.source.name": parameters.get("task") or parameters.get("command", ""),
        "mlflow.source.type": "JOB",
        "mlflow.source.git.commit": parameters.get("commit", ""),
        "trainmaster.job": subject.job,
        "trainmaster.code": parameters.get("code", ""),
    }
    return {name: value[:_LONGEST_VALUE] for name, value in told.items() if value}


def _allowed(name: str) -> str:
    """Return a name that MLflow takes."""
    return re.sub(r"[^\w\-. /:]", "_", name)[:250] or "_"
