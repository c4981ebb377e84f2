"""Runs a job by `trainmaster run` and reads what it wrote of its steps. Used by the benches of whole jobs."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from bench.contestants import BIN

_WARM_UP = 10  # steps


class Ran(NamedTuple):
    """A finished job: the median seconds of a step, and samples per second by it."""

    step_seconds: float
    samples_per_second: float


def a_job(strategy: dict[str, Any], workers: int, batch: int, steps: int, **spec: Any) -> dict[str, Any]:
    """A job of the text example; `arguments` go to the task, the rest of `spec` into the spec."""
    training = {
        "task": "trainmaster_trainer.tasks.text:Text",
        "arguments": spec.pop("arguments", {}),
        "steps": steps,
        "globalBatchSize": batch,
    }
    defaults = {
        "strategy": strategy,
        "training": training,
        "workers": {"replicas": workers},
        "checkpoint": {"everySteps": 10 * steps},
    }
    return document({**defaults, **spec})


def document(spec: dict[str, Any]) -> dict[str, Any]:
    """A job of this spec."""
    return {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "bench"},
        "spec": spec,
    }


def write(job: dict[str, Any], folder: Path) -> Path:
    """The job as a file."""
    folder.mkdir(parents=True)
    path = folder / "job.yaml"  # JSON is YAML
    path.write_text(json.dumps(job))
    return path


def train(job: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Train it to its end; the lines of all its metrics.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    path = write(job, folder)
    command = [str(BIN / "trainmaster"), "run", str(path), "--workdir", str(folder / "run"), "--output", "json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files = (folder / "run").rglob("metrics*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def run(job: dict[str, Any], folder: Path) -> Ran:
    """Train it; how fast it went."""
    lines = train(job, folder)
    seconds = sorted(line["step_seconds"] for line in lines[_WARM_UP:] if "step_seconds" in line)
    step = seconds[len(seconds) // 2]
    return Ran(step, job["spec"]["training"]["globalBatchSize"] / step)
