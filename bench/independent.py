"""Jobs that the measurements run through `trainmaster run`, and how fast their steps were by their own metrics."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.jobs import document

BIN = Path(sys.executable).parent
SECONDS = 240


def steps_per_second(folder: Path, spec: dict[str, Any]) -> float:
    """Run a job of a task; the steps of its last nine tenths per second, by the times of their lines.

    Raises:
        CalledProcessError: it did not succeed.
    """
    times = step_times(folder, spec)
    first = len(times) // 10
    return (len(times) - 1 - first) / (times[-1] - times[first])


def step_times(folder: Path, spec: dict[str, Any]) -> list[float]:
    """Run a job of a task; when each of its steps ended.

    Raises:
        CalledProcessError: it did not succeed.
    """
    folder.mkdir(parents=True)
    (folder / "job.yaml").write_text(json.dumps(document(spec)))
    command = [str(BIN / "trainmaster"), "run", str(folder / "job.yaml"), "--workdir", str(folder / "work")]
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(command, check=True, stdout=output, stderr=output, timeout=SECONDS)
    text = (folder / "work" / "checkpoints" / "metrics.jsonl").read_text()
    return [line["time"] for line in map(json.loads, text.splitlines()) if "loss" in line]


def training(steps: int, batch: int, **arguments: Any) -> dict[str, Any]:
    """`spec.training` of the noise task, with one checkpoint at the end."""
    return {
        "task": "bench.tasks:Noise",
        "arguments": arguments,
        "steps": steps,
        "globalBatchSize": batch,
        "workingDirectory": str(Path(__file__).parent.parent),
    }
