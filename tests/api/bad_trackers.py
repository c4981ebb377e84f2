"""Specs whose trackers could never be reached, part of the table in bad_specs.py."""

from __future__ import annotations

from typing import Any

from tests.api.changes import bad as _bad

_HERE = "training.trackers"
_MLFLOW, _WANDB, _OTEL = f"{_HERE}.mlflow", f"{_HERE}.wandb", f"{_HERE}.openTelemetry"


def _url(url: str) -> dict[str, Any]:
    return {"url": url}


TRACKERS = (
    _bad("a tracker nobody knows", _HERE, {"mlFlow": {}}, "mlflow", "unknown field", at=f"{_HERE}.mlFlow"),
    _bad("a typo in http", _MLFLOW, _url("htp://a:5000"), "not that of a tracking server", at=f"{_MLFLOW}.url"),
    _bad("one slash", _OTEL, _url("http:/collector"), "like http://collector:4318", at=f"{_OTEL}.url"),
    _bad("a letter in the port", _MLFLOW, _url("http://a:5OOO"), "not that of a tracking server", at=f"{_MLFLOW}.url"),
    _bad("two hosts", _WANDB, _url("https://a,b"), "not that of a server of Weights", at=f"{_WANDB}.url"),
    _bad("half an address", _OTEL, _url("http://[::1"), "not that of a collector", at=f"{_OTEL}.url"),
    _bad("a password nobody sends", _OTEL, _url("http://me:word@a:4318"), "OTLP_HEADERS", at=f"{_OTEL}.url"),
    _bad("no scheme", _WANDB, _url("wandb.example.com"), "not that of a server of Weights", at=f"{_WANDB}.url"),
    _bad("a team in the project", _WANDB, {"project": "team/digits"}, "none of / ", at=f"{_WANDB}.project"),
    _bad("an unknown mode", _WANDB, {"mode": "ofline"}, "offline", "Unsupported value", at=f"{_WANDB}.mode"),
)
