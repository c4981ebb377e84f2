"""A kill every 5 s: what is left of the steps that the same training makes while nobody disturbs it.

Aim: 0.97. Twice: with steps that keep both cores busy, so that whatever a restart computes is missing in steps; and
with steps of the same length that leave the cores to others, as those of a GPU do (they sleep).

One training each, in blocks of 15 s: calm, killed, killed, calm, and so on, so that an hour in which the machine is
slow, or grows slower, is in both alike (two trainings of 100 s one after the other differed by 15 % where nobody killed
anything). TRAINMASTER_KILL_SECONDS says how long it is killed in all (default 300); it is calm for as long. Steps are
those on the path to the final model, by the lines of metrics.jsonl; those trained twice count once. The first kill of a
block comes after half of the pause, so that what the last one costs is counted as well. Kept too: steps before any
kill, as calm blocks would not show it if kills made a training slower for good; and how long the first step after each
kill takes to come, which tells a slow restart from a slow machine.
"""

import bisect
import json
import os
import random
import signal
import statistics
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
BLOCK_SECONDS = 15.0
BLOCKS = max(1, round(SECONDS / BLOCK_SECONDS))  # with kills, and as many without
SETTLING_SECONDS = 20.0  # caches, huge pages; nobody kills yet
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
    found = {name: _measure(name, training) for name, training in TRAININGS.items()}
    figures = {"seconds": BLOCKS * BLOCK_SECONDS, "kill_every_seconds": KILL_EVERY_SECONDS}
    ratios = {name: one["ratio"] for name, one in found.items()}
    results.save("kill_every", {**figures, **ratios, "trainings": found})
    told = [f"{one['ratio']:.3f}x ({name}: {one['seconds_lost_per_kill']:.2f} s a kill)" for name, one in found.items()]
    return f"kill_every: undisturbed steps {', '.join(told)}"


def _measure(name: str, training: dict[str, Any]) -> dict[str, Any]:
    """Calm blocks and such with kills, in one training."""
    kills: list[float] = []
    with _running(training) as run:
        first = run.wait_for_first_steps()
        begin = first + SETTLING_SECONDS
        for block in range(2 * BLOCKS):
            kills += _block(run, begin + block * BLOCK_SECONDS, _is_killed(block))
            print(f"{name}, block {block + 1} of {2 * BLOCKS}: {len(kills)} kills", flush=True)
        _sleep_until(begin + 2 * BLOCKS * BLOCK_SECONDS + SETTLED_SECONDS)
        times = sorted(run.times())
    before = _steps_between(times, begin - SETTLING_SECONDS / 2, begin) / (SETTLING_SECONDS / 2)
    return {"steps_per_second_before_any_kill": before, **_figures(times, begin, kills)}


def _is_killed(block: int) -> bool:
    """Calm, killed, killed, calm: a steady drift is in both alike."""
    return block % 4 in (1, 2)


def _block(run: Training, begin: float, kill: bool) -> list[float]:
    """When it killed. Looks for the ranks in calm blocks too: looking costs as much in both."""
    kills = []
    for number in range(int(BLOCK_SECONDS / KILL_EVERY_SECONDS)):
        _sleep_until(begin + (number + 0.5) * KILL_EVERY_SECONDS)
        pids = run.rank_pids()
        if kill and pids:
            os.kill(random.choice(pids), signal.SIGKILL)  # noqa: S311 no secret
            kills.append(time.time())
    _sleep_until(begin + BLOCK_SECONDS)
    return kills


def _figures(times: list[float], begin: float, kills: list[float]) -> dict[str, Any]:
    """What the times of all steps say, in seconds of the epoch and ascending."""
    steps: dict[bool, list[int]] = {False: [], True: []}
    for block in range(2 * BLOCKS):
        start = begin + block * BLOCK_SECONDS
        steps[_is_killed(block)].append(_steps_between(times, start, start + BLOCK_SECONDS))
    ratio = sum(steps[True]) / sum(steps[False])
    return {
        "ratio": ratio,
        "standard_error": _standard_error([ours / calm for ours, calm in zip(steps[True], steps[False], strict=True)]),
        "seconds_lost_per_kill": (1 - ratio) * BLOCKS * BLOCK_SECONDS / max(len(kills), 1),
        "kills": len(kills),
        "steps_calm": steps[False],
        "steps_killed": steps[True],
        "seconds_to_next_step": [round(_next_step(times, kill) - kill, 3) for kill in kills],
    }


def _steps_between(times: list[float], begin: float, end: float) -> int:
    return bisect.bisect_left(times, end) - bisect.bisect_left(times, begin)


def _next_step(times: list[float], kill: float) -> float:
    later = bisect.bisect_right(times, kill)
    return times[later] if later < len(times) else times[-1]


def _standard_error(ratios: list[float]) -> float:
    """Of their mean, from how much neighbouring blocks differ."""
    return statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0


def _sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.time()))


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
