"""Send metrics of OpenTelemetry by OTLP over HTTP, in protobuf: each figure is a gauge, with a point for each line.

Standard library only. A collector that has a point already takes it once more: time and value are equal.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence

from trainmaster_trainer.trackers import protobuf
from trainmaster_trainer.trackers.points import ATTEMPT, Point, TrackedJob, TrackerError

_PATH = "/v1/metrics"
_SECONDS = 20.0
_PREFIX = "trainmaster.training."
_MOST_SAID = 300
_LONGEST_ATTRIBUTE = 256  # they go with each request


class Collector:
    """Collector is where the points go."""

    def __init__(self, subject: TrackedJob) -> None:
        self._subject = subject
        self._url = _url(subject.options, os.environ)
        self._headers = _headers(os.environ)
        self._resource = protobuf.message(1, *_resource(subject, os.environ))

    def begin(self, run: str) -> str:  # noqa: ARG002 a collector knows of no runs
        """Ask whether it takes anything at all: an empty request is a good one."""
        self._send(b"")
        return self._subject.uid

    def cut(self, step: int) -> None:
        """Do nothing: a collector keeps what it was told."""

    def tell(self, points: Sequence[Point]) -> None:
        """Send the figures, the step and the attempt as gauges."""
        gauges: dict[str, list[bytes]] = {}
        for point in points:
            more = {"step": float(point.step), ATTEMPT: float(point.attempt)}
            for name, value in {**point.figures, **more}.items():
                data = protobuf.message(1, protobuf.fixed64(3, round(point.time * 1e9)), protobuf.double(4, value))
                gauges.setdefault(name, []).append(data)
        metrics = [
            protobuf.message(2, protobuf.text(1, _PREFIX + name), protobuf.message(5, *of))  # Metric.gauge
            for name, of in gauges.items()
        ]
        scope = protobuf.message(1, protobuf.text(1, "trainmaster"))
        self._send(protobuf.message(1, self._resource, protobuf.message(2, scope, *metrics)) if metrics else b"")

    def restarted(self, point: Point) -> None:
        """Do nothing: the attempt is a gauge."""

    def finish(self, end: str) -> None:
        """Do nothing: all is sent."""

    def _send(self, body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf", **self._headers}
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 http or https
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 likewise
                answer.read()
        except urllib.error.HTTPError as error:
            said = error.read(_MOST_SAID).decode(errors="replace")
            raise TrackerError(f"{self._url} answers {error.code} {error.reason}: {said}") from None
        except OSError as error:
            raise TrackerError(f"{self._url} cannot be reached: {getattr(error, 'reason', error)}") from None


def _url(options: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return where to send, as the specification has it: the variable for metrics is taken as it is."""
    whole = environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "")
    base = options.get("url") or ("" if whole else environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""))
    if not base and not whole:
        raise TrackerError("no collector is named: set url, or the variable OTEL_EXPORTER_OTLP_ENDPOINT")
    return base.rstrip("/") + _PATH if base else whole


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    names = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS")
    pairs = [pair.partition("=") for name in names for pair in environment.get(name, "").split(",") if "=" in pair]
    return {key.strip(): urllib.parse.unquote(value.strip()) for key, _, value in pairs}


def _resource(subject: TrackedJob, environment: Mapping[str, str]) -> list[bytes]:
    given = dict(re.findall(r"([^=,]+)=([^,]*)", environment.get("OTEL_RESOURCE_ATTRIBUTES", "")))
    namespace = subject.job.rpartition("/")[0]
    ours = {
        "service.name": environment.get("OTEL_SERVICE_NAME") or subject.name,
        "service.instance.id": subject.uid,
        "service.namespace": namespace,
        "trainmaster.job": subject.job,
    }
    more = {f"trainmaster.{name}": value[:_LONGEST_ATTRIBUTE] for name, value in subject.parameters.items()}
    return [
        protobuf.message(1, protobuf.text(1, name), protobuf.message(2, protobuf.text(1, value)))
        for name, value in {**more, **ours, **given}.items()
    ]
