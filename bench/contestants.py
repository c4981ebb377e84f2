"""The two ways to start the same script on this machine with two ranks: torchrun, and a TrainingJob."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).parent / "scripts" / "steps.py"
REPORTING = SCRIPT.with_name("reporting_steps.py")  # the same, with session.report after each step
KEEPING = SCRIPT.with_name("keeping_steps.py")  # and with session.state
SAVING = SCRIPT.with_name("saving_steps.py")  # the same, with a checkpoint of its own every 20 steps
BIN = Path(sys.executable).parent
RANKS = 2
_MARK = "TRAINMASTER_BENCH_RUN"

JOB = """\
apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {{name: bench}}
spec:
  strategy: {{type: AllReduce}}
  training: {{command: [python, {arguments}]}}
  workers: {{replicas: 1, gpus: 2}}
"""


class Note(NamedTuple):
    """One step of one rank: its number, when it ended (epoch seconds), and by which process."""

    step: int
    time: float
    pid: int


def notes_of(folder: Path, rank: int) -> list[Note]:
    """What `rank` has noted in `folder` so far."""
    path = folder / f"rank-{rank}.txt"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    parts = (line.split() for line in lines if line.endswith("\n"))
    return [Note(int(step), float(when), int(pid)) for step, when, pid in parts]


@dataclass
class Run:
    """A running contestant. All its processes, and no others, have its folder in the environment."""

    process: subprocess.Popen[bytes]
    started: float
    notes_folder: Path

    def notes(self, rank: int) -> list[Note]:
        """What `rank` has noted so far."""
        return notes_of(self.notes_folder, rank)

    def wait_for_step(self, step: int, not_by: frozenset[int] = frozenset(), limit: float = 120) -> float:
        """When the last rank ended `step` (or a later one), by processes other than `not_by`.

        Raises:
            TimeoutError: a rank did not get there.
        """
        return max(self._wait_for_rank(rank, step, not_by, limit) for rank in range(RANKS))

    def _wait_for_rank(self, rank: int, step: int, not_by: frozenset[int], limit: float) -> float:
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            for note in self.notes(rank):
                if note.step >= step and note.pid not in not_by:
                    return note.time
            time.sleep(0.05)
        raise TimeoutError(f"rank {rank} took no step {step} within {limit} s")

    def pids(self) -> frozenset[int]:
        """All processes that took a step so far."""
        return frozenset(note.pid for rank in range(RANKS) for note in self.notes(rank))


def torchrun_command(folder: Path, *numbers: int, script: Path = SCRIPT) -> list[str]:
    """The command of torchrun as shipped, with restarts allowed."""
    flags = ["--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=3"]
    return [str(BIN / "torchrun"), *flags, str(script), str(folder), *map(str, numbers)]


def trainmaster_command(folder: Path, *numbers: int, script: Path = SCRIPT) -> list[str]:
    """The same script as a job."""
    job = folder / "job.yaml"
    arguments = ", ".join(f'"{argument}"' for argument in (script, folder, *numbers))
    job.write_text(JOB.format(arguments=arguments))
    return [str(BIN / "trainmaster"), "run", str(job), "--workdir", str(folder / "work")]


CONTESTANTS = {"torchrun": torchrun_command, "trainmaster": trainmaster_command}
Command = Callable[..., list[str]]  # of the folder, steps, width and batch size
LEVELS: dict[str, Command] = {
    **CONTESTANTS,
    "reporting": partial(trainmaster_command, script=REPORTING),
    "keeping": partial(trainmaster_command, script=KEEPING),
}
WITH_STATE: dict[str, Command] = {"saving": partial(torchrun_command, script=SAVING), "keeping": LEVELS["keeping"]}


@contextmanager
def running(name: str, folder: Path, steps: int, width: int = 128, batch: int = 32) -> Iterator[Run]:
    """Start a contestant; end all of it afterwards."""
    folder.mkdir(parents=True)
    with started({**LEVELS, **WITH_STATE}[name](folder, steps, width, batch), folder) as run:
        yield run


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[Run]:
    """Start a command whose processes note their steps in this folder; end all of it afterwards."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", _MARK: str(folder)}
    with (folder / "output.txt").open("wb") as output:
        now = time.time()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    run = Run(process, now, folder)
    try:
        yield run
    finally:
        _end(run)


def _end(run: Run) -> None:
    """SIGINT first: both clean up after themselves on it."""
    if run.process.poll() is None:
        run.process.send_signal(signal.SIGINT)
    try:
        run.process.wait(30)
    except subprocess.TimeoutExpired:
        run.process.kill()
        run.process.wait()
    for pid in _marked(run.notes_folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _marked(folder: Path) -> Iterator[int]:
    """Yield the processes that a contestant has left: a rank that torchrun had started anew may hang without a step."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if f"{_MARK}={folder}".encode() in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
