"""metrics.jsonl: one line per step, each step exactly once whatever restarts there were; and result.json at the end.

    {"step": 17, "loss": 0.41, "samples_per_second": 9120.0, "step_seconds": 0.028, "attempt": 1, "time": 1764…}
    {"step": 400, "evaluation": {"accuracy": 0.98}, "attempt": 1, "time": 1764…}

Lines of steps up to S reach the disk before the checkpoint of S does, and a resume from S cuts off all later ones.
Written by rank 0, from `loop.py`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster_trainer.checkpoint.layout import write_all, write_file

METRICS = "metrics.jsonl"
RESULT = "result.json"


class Metrics:
    """Appends to the metrics file."""

    def __init__(self, folder: Path, attempt: int, resumed_step: int) -> None:
        self._folder = folder
        self._attempt = attempt
        path = folder / METRICS
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._descriptor, _length_up_to(path, resumed_step))
        self._lines: list[str] = []

    def add(self, step: int, **values: Any) -> None:
        """Remember one line."""
        line = {"step": step, **values, "attempt": self._attempt, "time": round(time.time(), 3)}
        self._lines.append(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Write the lines: a kill of this process loses none of them from here on."""
        write_all(self._descriptor, memoryview("".join(self._lines).encode()))
        self._lines.clear()

    def sync(self) -> None:
        """Bring what is written to the disk: not even a crash of the node loses it."""
        os.fsync(self._descriptor)

    def finish(self, step: int, figures: Mapping[str, float]) -> None:
        """The evaluation's line, and the result."""
        self.add(step, evaluation=dict(figures))
        self.flush()
        self.sync()
        result = json.dumps({"step": step, "metrics": dict(figures)}, indent=1)
        write_file(self._folder / RESULT, result.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _length_up_to(path: Path, step: int) -> int:
    """How many bytes of the file speak of steps up to `step`; a torn line at the end does not count."""
    length = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n") or not _belongs(line, step):
                break
            length += len(line)
    return length


def _belongs(line: bytes, step: int) -> bool:
    try:
        values: dict[str, Any] = json.loads(line)
        return int(values["step"]) <= step and "loss" in values
    except (ValueError, KeyError, TypeError):
        return False
