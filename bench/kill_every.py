"""A kill every 5 s: what is left of the steps of a training that nobody disturbs, in turn on the same machine.

Aim: 0.97. Twice: with steps that keep both cores busy, so that whatever a restart computes is missing in steps; and
with steps of the same length that leave the cores to others, as those of a GPU do (they sleep).

TRAINMASTER_KILL_SECONDS says how long each is killed in all (default 300), in three rounds; an undisturbed training
takes as long beside each round. A round counts from its first step on, by the lines of metrics.jsonl: steps on the path
to the final model, those trained twice only once. The first kill comes after half of the pause, so that what the last
one costs is counted as well. How long the first step after each kill takes to come is kept too: it tells a slow
restart from an hour in which everything is slow.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import independent, results
from bench.contestants import BIN
from bench.jobs import document

KILL_EVERY_SECONDS = 5.0
SECONDS = float(os.environ.get("TRAINMASTER_KILL_SECONDS", "300"))
ROUNDS = 3  # longer than half a minute each, in which a training and its kills have hardly begun
SETTLED_SECONDS = 1.0  # lines are written a few at a time
STEPS = 1_000_000
TRAININGS: dict[str, dict[str, Any]] = {
    "busy": {
        "task": "trainmaster_trainer.tasks.digits:Digits",
        "arguments": {"hidden": 1024},
        "steps": STEPS,
        "globalBatchSize": 512,
    },
    "device": independent.training(STEPS, 64, width=512, paces=[0.025]),
}


class Training:
    """One run of the job, and how far it is."""

    def __init__(self, folder: Path, training: dict[str, Any]) -> None:
        spec = {
            "strategy": {"type": "AllReduce"},
            "training": training,
            "workers": {"replicas": 1, "gpus": 2},
            "checkpoint": {"everySteps": 200, "keep": 2},
            "failurePolicy": {"maxRestarts": 1000},
        }
        job = folder / "job.yaml"
        job.write_text(json.dumps(document(spec)))
        command = [str(BIN / "trainmaster"), "run", str(job), "--workdir", str(folder / "work")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        self._metrics = folder / "work" / "checkpoints" / "metrics.jsonl"

    def times(self) -> list[float]:
        """When each step of the committed path was written down, in seconds of the epoch."""
        lines = self._metrics.read_text().splitlines(keepends=True) if self._metrics.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}\n")]
        return [row["time"] for row in rows if "loss" in row]

    def wait_for_first_steps(self, seconds: float = 300) -> float:
        """When it wrote down the first ones.

        Raises:
            TimeoutError: it did not.
        """
        end = time.monotonic() + seconds
        while not self.times():
            if time.monotonic() > end or self.process.poll() is not None:
                raise TimeoutError("the training did not begin")
            time.sleep(0.1)
        return self.times()[0]

    def rank_pids(self) -> list[int]:
        """The processes of its ranks: below the warm parent, which is a child of the command."""
        return [pid for pid in _all_pids() if _name(pid).startswith("tm-rank-") and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        ancestors = [pid]
        while ancestors[-1] > 1:
            ancestors.append(_parent(ancestors[-1]))
        return self.process.pid in ancestors


def main() -> str:
    """Measure; gives the last line."""
    found = {name: _compare(name, training) for name, training in TRAININGS.items()}
    figures = {"seconds": SECONDS, "kill_every_seconds": KILL_EVERY_SECONDS}
    results.save("kill_every", {**figures, **{name: one["ratio"] for name, one in found.items()}, "rounds": found})
    told = [f"{one['ratio']:.3f}x ({name}: {one['seconds_lost_per_kill']:.2f} s a kill)" for name, one in found.items()]
    return f"kill_every: undisturbed steps {', '.join(told)}"


def _compare(name: str, training: dict[str, Any]) -> dict[str, Any]:
    """Undisturbed and killed rounds in turn."""
    steps: dict[bool, list[int]] = {False: [], True: []}
    gaps: list[float] = []
    for number in range(ROUNDS):
        for kill in (False, True) if number % 2 else (True, False):
            done, some = _round(training, SECONDS / ROUNDS, kill)
            steps[kill].append(done)
            gaps += some
        print(f"{name}, round {number + 1}: {steps[False][-1]} steps, {steps[True][-1]} with kills", flush=True)
    ratio = sum(steps[True]) / sum(steps[False])
    lost = (1 - ratio) * SECONDS / max(len(gaps), 1)
    told = {"steps_calm": steps[False], "steps_killed": steps[True], "seconds_to_next_step": gaps}
    return {"ratio": ratio, "seconds_lost_per_kill": lost, "kills": len(gaps), **told}


def _round(training: dict[str, Any], seconds: float, kill: bool) -> tuple[int, list[float]]:
    """Steps within `seconds` from the first one on, and how long after each kill the next one ended."""
    with _running(training) as run:
        first = run.wait_for_first_steps()
        kills = []
        for number in range(int(seconds / KILL_EVERY_SECONDS)):
            _sleep_until(first + (number + 0.5) * KILL_EVERY_SECONDS)
            if kill and _kill_one(run):
                kills.append(time.time())
        end = first + seconds + SETTLED_SECONDS
        _sleep_until(end)
        times = run.times()
        gaps = [round(min((when for when in times if when > kill), default=end) - kill, 3) for kill in kills]
        return sum(first <= when <= first + seconds for when in times), gaps


def _sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.time()))


def _kill_one(run: Training) -> bool:
    pids = run.rank_pids()
    if pids:
        os.kill(random.choice(pids), signal.SIGKILL)  # noqa: S311 no secret
    return bool(pids)


@contextmanager
def _running(training: dict[str, Any]) -> Iterator[Training]:
    with tempfile.TemporaryDirectory() as folder:
        run = Training(Path(folder), training)
        try:
            yield run
        finally:
            run.process.terminate()  # SIGINT is ignored where make runs in the background
            try:
                run.process.wait(60)
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.wait()


def _all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
