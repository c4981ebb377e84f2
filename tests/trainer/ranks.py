"""Real rank processes for tests: start a group of them, wait, kill, read what they left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from trainmaster.wire import codec, names
from trainmaster.wire.progress_page import ProgressFile
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.group import Group

HERE = Path(__file__).parent
PATIENCE = 200.0
Options = dict[str, Any]
STATELESS: Options = {"optimizer": {"type": "SGD", "groups": [], "others": {}}}  # scalars, where nothing is trained


class Forker:
    """The process from which ranks are forked."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "forker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
            return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@dataclass
class Running:
    """A group of ranks that was started."""

    forker: Forker
    pids: list[int]
    outputs: list[Path]
    pages: list[ProgressFile]
    store: object  # as an agent's: it outlives every rank
    codes: dict[int, int] = field(default_factory=dict)

    def wait(self) -> list[int]:
        """Exit codes, minus the signal for a rank that was killed."""
        return [self.wait_for(rank) for rank in range(len(self.pids))]

    def wait_for(self, rank: int) -> int:
        """The exit code of one rank, when it has one."""
        if rank not in self.codes:
            self.codes[rank] = os.waitstatus_to_exitcode(self.forker.ask(wait=self.pids[rank])["status"])
        return self.codes[rank]

    def kill(self) -> None:
        """SIGKILL to all that still run."""
        for rank, pid in enumerate(self.pids):
            if rank not in self.codes:
                os.kill(pid, signal.SIGKILL)
        self.wait()

    def reach(self, step: int) -> None:
        """Return when all ranks have done this step: the page has no bell, so it is looked at."""
        deadline = time.monotonic() + PATIENCE
        while min(page.read().step for page in self.pages) < step:
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.002)

    def output(self) -> str:
        """What all ranks wrote to their standard output and error."""
        return "\n".join(path.read_text() for path in self.outputs if path.exists())


@dataclass(frozen=True)
class Job:
    """One job: what it trains, and where its folders are. `pods` > 0: private folders, one per pod."""

    forker: Forker
    folder: Path
    plan: TrainingPlan
    variables: dict[str, str] = field(default_factory=dict)
    memory: bool = False  # whether each pod has a folder in memory

    def but(self, **changes: Any) -> Job:
        """The same job with another plan."""
        return replace(self, plan=replace(self.plan, **changes))

    def checkpoints(self, pod: int = 0) -> Path:
        """The folder of the checkpoints, or that of one pod where each has its own."""
        return self.folder / "checkpoints" if self.plan.checkpoint_shared else self.folder / f"pod-{pod}"

    def start(self, world: int, attempt: int = 1, ranks_per_pod: int = 1) -> Running:
        """Start all ranks of an attempt."""
        store = dist.TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        self.folder.mkdir(parents=True, exist_ok=True)
        for pod in range(world // ranks_per_pod if self.memory else 0):
            (self.folder / f"memory-{pod}").mkdir(exist_ok=True)
        paths = [self.folder / f"page-{attempt}-{rank}" for rank in range(world)]
        outputs = [self.folder / f"output-{attempt}-{rank}" for rank in range(world)]
        pages = [ProgressFile(str(path), create=True) for path in paths]
        environments = [
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(rank % ranks_per_pod),
                "LOCAL_WORLD_SIZE": str(ranks_per_pod),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "OMP_NUM_THREADS": "1",
                names.ENV_TRAINING: codec.encode(self.plan).decode(),
                names.ENV_CHECKPOINTS: str(self.checkpoints(rank // ranks_per_pod)),
                names.ENV_PROGRESS_FILE: str(paths[rank]),
                names.ENV_ATTEMPT: str(attempt),
                names.ENV_JOB_UID: "uid",
                "ANSWER": f"{paths[rank]}-answer",
                names.ENV_MEMORY: str(self.folder / f"memory-{rank // ranks_per_pod}") if self.memory else "",
                **self.variables,
            }
            for rank in range(world)
        ]
        pids = self.forker.ask(start=environments, output=[str(path) for path in outputs])["pids"]
        return Running(self.forker, pids, outputs, pages, store)

    def run(self, world: int, attempt: int = 1, **keywords: Any) -> Job:
        """Train to the end."""
        running = self.start(world, attempt, **keywords)
        codes = running.wait()
        assert codes == [0] * world, running.output()
        return self

    def call(self, world: int, function: str, ranks_per_pod: int = 1, **arguments: Any) -> list[Any]:
        """Call `module:function` of this folder with the group on every rank; the answers, by rank."""
        running = self.calling(function, **arguments).start(world, ranks_per_pod=ranks_per_pod)
        assert running.wait() == [0] * world, running.output()
        return [self.answer(rank) for rank in range(world)]

    def answer(self, rank: int, attempt: int = 1) -> Any:
        """What a rank's function gave."""
        return json.loads((self.folder / f"page-{attempt}-{rank}-answer").read_text())

    def calling(self, function: str, **arguments: Any) -> Job:
        """A job whose ranks call a function instead of training."""
        return replace(self, variables={**self.variables, "CALL": function, "ARGUMENTS": json.dumps(arguments)})

    def lines(self) -> list[dict[str, Any]]:
        """All of metrics.jsonl."""
        return [json.loads(line) for line in (self.checkpoints() / "metrics.jsonl").read_text().splitlines()]

    def losses(self) -> list[float]:
        """One per step; there must be exactly one line of each."""
        steps = [line for line in self.lines() if "loss" in line]
        assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
        return [line["loss"] for line in steps]

    def manifest(self, step: int, pod: int = 0) -> dict[str, Any]:
        """The manifest of a checkpoint."""
        return read_json(self.checkpoints(pod) / f"step-{step:08d}" / "manifest.json")

    def result(self) -> dict[str, Any]:
        """What result.json says."""
        return read_json(self.checkpoints() / "result.json")


def make_job(forker: Forker, folder: Path, **changes: Any) -> Job:
    """A small task under AllReduce, unless told otherwise."""
    plan: Options = {
        "strategy": "AllReduce",
        "task": "small_tasks:Line",
        "steps": 6,
        "global_batch_size": 10,
        "seed": 1,
        "checkpoint_every": 2,
        "working_directory": str(HERE),
    }
    variables = changes.pop("variables", {})
    return Job(forker, folder, TrainingPlan(**{**plan, **changes}), dict(variables))


def alone() -> Group:
    """A group of one, without a process group: for what is tested in one process."""
    return Group(0, 1, 0, 1, torch.device("cpu"), dist.HashStore())  # type: ignore[attr-defined]


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file."""
    value: dict[str, Any] = json.loads(path.read_text())
    return value


NewJob = Callable[..., Job]
