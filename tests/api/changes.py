"""A good job, changes of it by dotted paths, and what a bad spec is. Used by bad_specs.py and its friends."""

from __future__ import annotations

import copy
import itertools
import re
from dataclasses import dataclass
from typing import Any

GONE: Any = ...
"""In a change: the field is taken away."""


@dataclass(frozen=True)
class BadSpec:
    """`changes` maps dotted paths to values; `field` is the path that the check must name."""

    name: str
    changes: dict[str, Any]
    field: str
    words: str
    server: str

    def job(self) -> dict[str, Any]:
        """The bad job."""
        return changed(good_job(), self.changes)


def good_job() -> dict[str, Any]:
    """A small job that everybody accepts."""
    return {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits"},
        "spec": {
            "strategy": {"type": "AllReduce"},
            "training": {"task": "trainmaster_trainer.tasks.digits:Digits", "steps": 500, "globalBatchSize": 256},
            "workers": {"replicas": 4},
        },
    }


def changed(job: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`job` with each dotted path (workers.env.0.name) set, or taken away."""
    job = copy.deepcopy(job)
    for path, value in changes.items():
        holder: Any = job
        parts: list[Any] = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part, following in itertools.pairwise(parts):
            empty: Any = [] if isinstance(following, int) else {}
            holder = _member(holder, part, empty)
        if value is GONE:
            holder.pop(parts[-1], None)
        elif isinstance(holder, list):
            holder.append(value)
        else:
            holder[parts[-1]] = value
    return job


def _member(holder: Any, part: Any, empty: Any) -> Any:
    if isinstance(holder, list):
        if part == len(holder):
            holder.append(empty)
        return holder[part]
    return holder.setdefault(part, empty)


def bad(name: str, path: str, value: Any, words: str, server: str = "", *, at: str = "", **also: Any) -> BadSpec:
    """A job with `value` at `path`. `also` is set first, with __ for a dot; `at` is the field named, if another."""
    changes = {_full(way.replace("__", ".")): one for way, one in also.items()} | {_full(path): value}
    field = re.sub(r"\.(\d+)", r"[\1]", _full(at or path))
    return BadSpec(name, changes, field, words, server or words)


def _full(path: str) -> str:
    return path if path == "spec" or path.startswith("metadata") else f"spec.{path}"
