"""A kill every 5 s: what is left of the steps of a training that nobody disturbs, in turn on the same machine.

Aim: 0.97. TRAINMASTER_KILL_SECONDS says for how long each of the two trains (default 30; the run of record: 300).
Both count from the first step on: steps on the path to the final model, those trained twice only once.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import results
from bench.contestants import BIN

KILL_EVERY_SECONDS = 5.0
SECONDS = float(os.environ.get("TRAINMASTER_KILL_SECONDS", "30"))
RANKS = 2
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
        command = [str(BIN / "trainmaster"), "run", str(job), "--workdir", str(folder / "work"), "--output", "json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder)
        self.step = 0
        self.restarts = 0
        self._moved = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_for_first_steps(self, seconds: float = 120) -> None:
        """Until it trains.

        Raises:
            TimeoutError: it does not.
        """
        if not self._moved.wait(seconds):
            raise TimeoutError("the training did not begin")

    def rank_pids(self) -> list[int]:
        """The processes of its ranks: children of the warm parent, which is a child of the command."""
        return [pid for pid in _all_pids() if _name(pid).startswith("tm-rank-") and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        return _parent(_parent(pid)) == self.process.pid

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            self.restarts += said.get("event", {}).get("reason") == "Restarting"
            step = said.get("progress", {}).get("step") or 0
            self.step = step or self.step
            if step:
                self._moved.set()


def main() -> str:
    """Measure; gives the last line."""
    calm, _ = _steps(kill=False)
    killed, restarts = _steps(kill=True)
    ratio = killed / calm
    figures = {"seconds": SECONDS, "kill_every_seconds": KILL_EVERY_SECONDS, "kills": restarts}
    results.save("kill_every", {**figures, "steps_calm": calm, "steps_killed": killed, "ratio": ratio})
    return f"kill_every: {ratio:.3f}x undisturbed steps, with {restarts} restarts"


def _steps(kill: bool) -> tuple[int, int]:
    """Steps within SECONDS from the first one on, and restarts."""
    with _training() as training:
        training.wait_for_first_steps()
        first, end = training.step, time.monotonic() + SECONDS
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, KILL_EVERY_SECONDS))
            if kill and left > KILL_EVERY_SECONDS:
                _kill_one(training)
        return training.step - first, training.restarts


def _kill_one(training: Training) -> None:
    pids = training.rank_pids()
    if pids:
        os.kill(random.choice(pids), signal.SIGKILL)  # noqa: S311 no secret


@contextmanager
def _training() -> Iterator[Training]:
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder))
        try:
            yield training
        finally:
            training.process.send_signal(signal.SIGINT)
            training.process.wait(60)


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
