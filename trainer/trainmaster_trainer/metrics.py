"""Write metrics.jsonl: one line per step, each step exactly once whatever restarts there were; at the end result.json.

    {"step": 17, "loss": 0.41, "samples_per_second": 9120.0, "step_seconds": 0.028, "attempt": 1, "time": 1764…}
    {"step": 400, "evaluation": {"accuracy": 0.98}, "attempt": 1, "time": 1764…}

A step's `metrics` are there where the task has some: {"step": 17, "loss": 0.41, "metrics": {"accuracy": 0.9}, …}. The
line of an evaluation comes after that of its step; a resume from this step cuts it off where it evaluates again.

`time` is when the step ended. A figure that is not a number is null: JSON has no NaN. `samples` is there where the loss
is the mean over so many of the batch's samples, since the others' share of it was lost with their pod. `told_before` is
the loss that an earlier attempt told of this step, where it was another one. Lines of steps up to S reach the
disk before the checkpoint of S does, and a resume from S cuts off all later ones. A full disk costs no training: lines
wait in memory until there is room, and only the first of them are tried.

Rank 0 writes it; in private folders, the first rank of each replica.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.wire.files import open_to_write, why_foreign

from trainmaster_trainer.checkpoint.layout import FENCE, Fence, write_all, write_file
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.lines import METRICS, end_of_lines, losses_after, text_up_to
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)

RESULT = "result.json"
LOOK_SECONDS = 0.02  # between two looks at the fence: on a network each asks the server
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Metrics:
    """Metrics appends to the metrics file. The file is known to be whole up to the checkpoint of `durable_step`."""

    def __init__(
        self,
        folder: Path,
        attempt: int,
        resumed_step: int,
        durable_step: int = 0,
        fence: Fence | None = None,
        *,
        evaluated: int = 0,
    ) -> None:
        self._folder = folder
        self._evaluated = evaluated  # lines of evaluations up to this step stay
        self._fence = fence
        self._next_look = 0.0
        self._durable_step = durable_step
        self.attempt = attempt
        self._told: dict[int, float | None] = {}  # losses of lines that were cut off
        self._lines: list[str] = []
        self._blocks: deque[bytes] = deque()  # lines that wait for the disk, as much as each flush has brought
        self._obstacle: OSError | None = None
        if why := why_foreign(folder / METRICS):
            raise ConfigurationError(
                f"spec.checkpoint.storage: {folder / METRICS} {why}. Remove it, or name another path."
            )
        self._descriptor = open_to_write(folder / METRICS)
        self.cut(resumed_step)

    @classmethod
    def for_attempt(cls, settings: Settings, resumed_step: int, durable_step: int, evaluated: int = 0) -> Metrics:
        """Return the metrics of this attempt. With an object store, the file here is no other attempt's."""
        fence = Fence(settings.checkpoints, settings.job_uid, settings.attempt)
        shared = None if settings.plan.checkpoint_url else fence
        return cls(settings.checkpoints, settings.attempt, resumed_step, durable_step, shared, evaluated=evaluated)

    def cut(self, step: int) -> None:
        """Cut off the lines of later steps, and what is torn; remember their losses."""
        end = end_of_lines(self._folder, step, self._durable_step, self._evaluated)
        self._told |= losses_after(self._folder, end)
        os.ftruncate(self._descriptor, end.bytes)
        self.last_step = end.step

    def add(self, step: int, *, ended: float | None = None, **values: Any) -> None:
        """Keep one line of a step that `ended` then, in seconds of the epoch; None: just now."""
        if "loss" in values and step in self._told:
            before = self._told.pop(step)
            if before != _finite(values["loss"]):
                values["told_before"] = before
        line = {"step": step, **values, "attempt": self.attempt, "time": round(ended or time.time(), 3)}
        self._lines.append(_json(line) + "\n")

    def flush(self) -> None:
        """Write the lines: a kill of this process loses none of them from here on, unless the disk is full.

        Raises:
            SupersededError, PlaceTakenError: a later attempt writes the lines now, or another job.
        """
        if self._lines:
            self._blocks.append("".join(self._lines).encode())
            self._lines.clear()
        if self._fence and time.monotonic() >= self._next_look:
            try:
                self._fence.check()
            except OSError as error:
                self._keep_back(error, f"until {FENCE}, which tells whether a later attempt has begun, can be read")
                return
            self._next_look = time.monotonic() + LOOK_SECONDS
        while self._blocks:
            size = os.fstat(self._descriptor).st_size
            try:
                write_all(self._descriptor, memoryview(self._blocks[0]))
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                os.ftruncate(self._descriptor, size)
                self._keep_back(error, "until there is room for them")
                return
            self._blocks.popleft()
        self._obstacle = None

    def _keep_back(self, error: OSError, until: str) -> None:
        if self._obstacle is None:
            log.warning("Lines of %s wait %s: %s", METRICS, until, error)
        self._obstacle = error

    def sync(self) -> None:
        """Bring what is written to the disk: not even a crash of the node loses it.

        Raises:
            OSError: lines still wait.
        """
        if self._obstacle:
            raise self._obstacle
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the line of an evaluation, after that of its step."""
        self.add(step, evaluation=dict(figures))
        self.flush()

    def finish(self, step: int, figures: Mapping[str, float], *, is_told: bool = False) -> None:
        """Write the result, and the line of the evaluation unless it `is_told` already."""
        self._next_look = 0.0
        if not is_told:
            self.add(step, evaluation=dict(figures))
        self.flush()
        self.sync()
        self.close()
        write_file(self._folder / RESULT, _json({"step": step, "metrics": dict(figures)}).encode() + b"\n")


def spread(folder: Path, step: int, source: int, group: Group, *, trusted: int = 0) -> None:
    """Give the lines that rank `source` has to the private folders that lack some, as that of a new pod does.

    Only lines up to `step`. All ranks call it together. `trusted`: as `end_of_lines` has it.
    """
    last = end_of_lines(folder, step, trusted).step
    found = group.gather(last)
    if min(found) >= found[source]:
        return
    text = group.broadcast(text_up_to(folder, step, trusted).decode() if group.rank == source else "", source)
    if group.local_rank == 0 and last < found[source]:
        write_file(folder / METRICS, text.encode())


def _json(values: Any) -> str:
    return json.dumps(_finite(values), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
