"""A kill every 5 s: what is left of the steps of a training that nobody disturbs, in turn on the same machine.

Aim: 0.97. TRAINMASTER_KILL_SECONDS says how long it is killed in all (default 300), in rounds of a minute at most; an
undisturbed training takes as long before each. A round counts from its first step on, by the lines of metrics.jsonl:
steps on the path to the final model, those trained twice only once.
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

from bench import results
from bench.contestants import BIN

KILL_EVERY_SECONDS = 5.0
SECONDS = float(os.environ.get("TRAINMASTER_KILL_SECONDS", "300"))
ROUND_SECONDS = 60.0
SETTLED_SECONDS = 1.0  # lines are written a few at a time
JOB = """\
apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {name: killed}
spec:
  strategy: {type: AllReduce}
  training:
    task: trainmaster_trainer.tasks.digits:Digits
    arguments: {hidden: 1024}
    steps: 1000000
    globalBatchSize: 512
  workers: {replicas: 1, gpus: 2}
  checkpoint: {everySteps: 200, keep: 2}
  failurePolicy: {maxRestarts: 1000}
"""


class Training:
    """One run of the job, and how far it is."""

    def __init__(self, folder: Path) -> None:
        job = folder / "job.yaml"
        job.write_text(JOB)
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
        """The processes of its ranks: children of the warm parent, which is a child of the command."""
        return [pid for pid in _all_pids() if _name(pid).startswith("tm-rank-") and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        return _parent(_parent(pid)) == self.process.pid


def main() -> str:
    """Measure; gives the last line."""
    rounds = max(1, round(SECONDS / ROUND_SECONDS))
    calm, killed, kills = [], [], 0
    for number in range(rounds):
        calm.append(_round(SECONDS / rounds, kill=False)[0])
        steps, some = _round(SECONDS / rounds, kill=True)
        killed.append(steps)
        kills += some
        print(f"round {number + 1}: {calm[-1]} steps, and {steps} with {some} kills", flush=True)
    ratio = sum(killed) / sum(calm)
    figures = {"seconds": SECONDS, "kill_every_seconds": KILL_EVERY_SECONDS, "kills": kills, "ratio": ratio}
    lost = (1 - ratio) * SECONDS / max(kills, 1)
    results.save("kill_every", {**figures, "steps_calm": calm, "steps_killed": killed, "seconds_lost_per_kill": lost})
    return f"kill_every: {ratio:.3f}x undisturbed steps, with {kills} kills of {lost:.2f} s each"


def _round(seconds: float, kill: bool) -> tuple[int, int]:
    """Steps within `seconds` from the first one on, and kills."""
    with _training() as training:
        first = training.wait_for_first_steps()
        kills = 0
        for number in range(1, int(seconds / KILL_EVERY_SECONDS)):
            _sleep_until(first + number * KILL_EVERY_SECONDS)
            kills += kill and _kill_one(training)
        _sleep_until(first + seconds + SETTLED_SECONDS)
        return sum(first <= when <= first + seconds for when in training.times()), kills


def _sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.time()))


def _kill_one(training: Training) -> bool:
    pids = training.rank_pids()
    if pids:
        os.kill(random.choice(pids), signal.SIGKILL)  # noqa: S311 no secret
    return bool(pids)


@contextmanager
def _training() -> Iterator[Training]:
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder))
        try:
            yield training
        finally:
            training.process.send_signal(signal.SIGINT)
            try:
                training.process.wait(60)
            except subprocess.TimeoutExpired:
                training.process.kill()
                training.process.wait()


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
