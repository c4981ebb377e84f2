"""The lines that rank 0 of a script adds to metrics.jsonl: one for each step that it reports with a loss or a figure.

    {"step": 17, "loss": 0.41, "metrics": {"accuracy": 0.9}, "attempt": 1, "time": 1764…}

As in a task's file (`metrics.py`), steps only rise, and lines of later steps than the one that a restart goes on from
are cut off. Standard library only, and Python 3.9.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainmaster.wire.files import open_to_write, why_foreign, write_all

from trainmaster_trainer.lines import METRICS, end_of_lines

_as_json = json.JSONEncoder(allow_nan=False).encode  # json.dumps makes an encoder for each line, in half of the time
Say = Callable[[str, str], None]  # what it is about, said once each; and the text


class ScriptLines:
    """ScriptLines is the file, opened with the first line: until then there is nothing to cut off."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._descriptor: int | None = None
        self._usable = True
        self._lock = threading.RLock()  # threads of a script report side by side
        self._writes = False
        self._last: dict[str, Any] = {}
        self._end = self._last_begins = 0

    def add(self, step: int, loss: float | None, metrics: Mapping[str, float], say: Say) -> None:
        """Write the line of a step, or more of it where it is the newest; an earlier one is left alone."""
        with self._lock:
            if self._writes:
                return  # a handler of a signal reports in the midst of a line
            self._writes = True
            try:
                if self._usable and self._descriptor is None:
                    self._open(step, say)
                if self._descriptor is not None and step >= self._last.get("step", 0):
                    self._write(self._descriptor, self._line(step, loss, metrics))
            except OSError as error:  # a full disk costs lines, no training
                say("lines", f"lines of {METRICS} are lost: {error}")
            finally:
                self._writes = False

    @property
    def step(self) -> int:
        """Return the step of the newest line of this process; 0 if there is none."""
        return int(self._last.get("step", 0))

    def sync(self) -> None:
        """Bring the lines to the disk: a checkpoint of the last step is about to become visible."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def _open(self, step: int, say: Say) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        why = why_foreign(self._folder / METRICS)
        if why:
            self._usable = False
            say("lines", f"{self._folder / METRICS} {why}, and is left alone: no lines are written")
            return
        descriptor = open_to_write(self._folder / METRICS)
        end = end_of_lines(self._folder, step - 1, trusted=step - 1)
        os.ftruncate(descriptor, end.bytes)
        self._descriptor, self._end = descriptor, end.bytes

    def _line(self, step: int, loss: float | None, metrics: Mapping[str, float]) -> dict[str, Any]:
        figures = {name: _finite(value) for name, value in metrics.items()}
        if step == self._last.get("step"):
            figures = {**self._last.get("metrics", {}), **figures}
            told = self._last["loss"] if loss is None else _finite(loss)
        else:
            told = None if loss is None else _finite(loss)
        more = {"metrics": figures} if figures else {}
        return {"step": step, "loss": told, **more, "attempt": self._attempt, "time": round(time.time(), 3)}

    def _write(self, descriptor: int, line: dict[str, Any]) -> None:
        begins = self._last_begins if line["step"] == self._last.get("step") else self._end
        if begins < self._end:
            os.ftruncate(descriptor, begins)
        try:
            write_all(descriptor, memoryview(f"{_as_json(line)}\n".encode()))
        except OSError:
            os.ftruncate(descriptor, begins)  # no half of a line
            self._end = begins
            raise
        self._last, self._last_begins, self._end = line, begins, os.lseek(descriptor, 0, os.SEEK_END)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
