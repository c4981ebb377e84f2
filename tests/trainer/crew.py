"""Members that come and go one by one: real processes, a roster file, sockets; killed and started again at will."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.core.regime.choice import look
from trainmaster.core.states.observed import Observed, Replica
from trainmaster.wire import codec, names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord, Rendezvous
from trainmaster.wire.progress_page import ProgressFile, ProgressPage

from tests.builders import NOON, a_heartbeat, a_job, a_replica, saying
from tests.ports import free_port
from tests.trainer.ranks import PATIENCE, Job

HOST = "127.0.0.1"
GRACE_SECONDS = 0.3


@dataclass
class Crew:
    """The members of one attempt of a job: first the workers, then the parameter servers."""

    job: Job
    workers: int
    servers: int = 0
    attempt: int = 1
    pids: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.job.folder.mkdir(parents=True, exist_ok=True)
        for rank in range(self.workers + self.servers):
            self._settle(rank)
        self.write_roster()

    def _settle(self, rank: int) -> None:
        self.ports[rank] = free_port()
        self.starts[rank] = self.starts.get(rank, -1) + 1
        self.away.discard(rank)
        ProgressFile(str(self._page(rank)), create=True).close()

    @property
    def roster_file(self) -> Path:
        """The same for all members; each agent has one of its own."""
        return self.job.folder / f"roster-{self.attempt}.json"

    def _page(self, rank: int) -> Path:
        return self.job.folder / f"page-{self.attempt}-{rank}"

    def output_file(self, rank: int) -> Path:
        """What a member writes."""
        return self.job.folder / f"output-{self.attempt}-{rank}"

    def output_of(self, rank: int) -> str:
        """What it has written so far; its process makes the file."""
        path = self.output_file(rank)
        return path.read_text() if path.exists() else ""

    def role(self, rank: int) -> str:
        """Worker or parameter server."""
        return names.WORKER if rank < self.workers else names.PARAMETER_SERVER

    def write_roster(self) -> None:
        """As the operator decides it and the agent writes it, when somebody comes, goes or moves."""
        found = look(self._job(), Observed(tuple(map(self._pod, self._present()))), NOON).regime.roster
        if found is None:
            return  # nobody is there to be told
        temporary = self.roster_file.with_suffix(".new")
        temporary.write_bytes(codec.encode(found))
        temporary.rename(self.roster_file)

    def _present(self) -> list[int]:
        return [rank for rank in sorted(self.ports) if rank not in self.gone | self.away]

    def _index(self, rank: int) -> int:
        return rank if rank < self.workers else rank - self.workers

    def _job(self) -> TrainingJob:
        """What the operator would have written."""
        job = a_job().where(strategy={"type": self.job.plan.strategy}, training={"command": ["true"]})
        servers = {"parameterServers": {"replicas": self.servers}} if self.servers else {}
        starts = {names.replica_key(self.role(rank), self._index(rank)): self.starts[rank] for rank in self._present()}
        founders = {"workers": self.workers, "parameterServers": self.servers}
        job = job.where(**servers).with_workers(self.workers)
        return job.at("Running", self.attempt, starts=starts, founders=founders).build()

    def _pod(self, rank: int) -> Replica:
        """A pod whose agent says that its rank trains."""
        pod = dataclasses.replace(a_replica(self._index(rank), role=self.role(rank)), address=HOST)
        door = Rendezvous(1, f"key of attempt {self.attempt}", (self.ports[rank],))
        beat = dataclasses.replace(a_heartbeat(), state=AgentState.RUNNING, attempt=self.attempt, rendezvous=door)
        return saying(pod, dataclasses.replace(beat, start=self.starts[rank]))

    def start(self, *ranks: int) -> Crew:
        """Start these members, or all."""
        chosen = ranks or tuple(self.ports)
        assert not self.pids.keys() & set(chosen), "one of them runs: nobody would end it"
        environments = [self._environment(rank) for rank in chosen]
        outputs = [str(self.output_file(rank)) for rank in chosen]
        pids = self.job.forker.ask(start=environments, output=outputs)["pids"]
        self.pids |= dict(zip(chosen, pids, strict=True))
        return self

    def _environment(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.workers + self.servers),
            "OMP_NUM_THREADS": "1",
            "TEST_LISTEN_PORT": str(self.ports[rank]),
            names.ENV_ROLE: self.role(rank),
            names.ENV_ROSTER: str(self.roster_file),
            names.ENV_TRAINING: codec.encode(self.job.plan).decode(),
            names.ENV_CHECKPOINTS: str(self.job.checkpoints()),
            names.ENV_PROGRESS_FILE: str(self._page(rank)),
            names.ENV_ATTEMPT: str(self.attempt),
            names.ENV_JOB_UID: "uid",
            **self.job.variables,
        }

    def start_and_wait(self, *workers: int) -> Crew:
        """Start these workers while no server is there; return when each asks for one.

        Every call in vain writes its page.
        """
        self.start(*workers)
        for rank in workers:
            for _ in range(2):
                moment = self.page(rank).updated
                self.until(lambda rank=rank, moment=moment: self.page(rank).updated > moment)  # type: ignore[misc]
        return self

    def kill(self, rank: int) -> None:
        """SIGKILL."""
        os.kill(self.pids[rank], signal.SIGKILL)
        self.wait(rank)

    def lose(self, *ranks: int) -> None:
        """Their pods are deleted: the others hear of it at once, while they still live for a moment."""
        self.away |= set(ranks)
        self.write_roster()
        time.sleep(GRACE_SECONDS)
        for rank in ranks:
            self.kill(rank)

    def stop(self, rank: int) -> None:
        """SIGTERM."""
        os.kill(self.pids[rank], signal.SIGTERM)

    def again(self, rank: int) -> None:
        """Start a member that died once more, elsewhere, as its agent does."""
        self._settle(rank)
        self.write_roster()
        self.start(rank)

    def join(self, rank: int) -> None:
        """A worker that was not there before. Its number is free."""
        self.workers = max(self.workers, rank + 1)
        self._settle(rank)
        self.write_roster()
        self.start(rank)

    def leave(self, rank: int) -> None:
        """A worker goes for good."""
        self.kill(rank)
        self.gone.add(rank)
        self.write_roster()

    def wait(self, rank: int) -> int:
        """The exit code of a member, when it has one; minus the signal if it was killed."""
        status: list[int] = []

        def ended() -> bool:
            answer = self.job.forker.ask(poll=self.pids[rank])["status"]
            status.extend([] if answer is None else [answer])
            return bool(status)

        self.until(ended)
        del self.pids[rank]
        return os.waitstatus_to_exitcode(status[0])

    def step(self, rank: int) -> int:
        """How far a member says that the training is."""
        return self.page(rank).step

    def page(self, rank: int) -> ProgressPage:
        """What a member's progress page says."""
        page = ProgressFile(str(self._page(rank)))
        try:
            return page.read()
        finally:
            page.close()

    def checkpoint(self, rank: int) -> CheckpointRecord | None:
        """What a member tells its agent of the newest checkpoint."""
        page = ProgressFile(str(self._page(rank)))
        try:
            return page.read_checkpoint()
        finally:
            page.close()

    def reach(self, step: int, rank: int = 0) -> None:
        """Return when a member has seen this step: the page has no bell, so it is looked at."""
        self.until(lambda: self.step(rank) >= step)

    def stands(self, step: int) -> None:
        """Return when member 0 has heard of a checkpoint of this step or a later one: it is saved beside the steps."""
        self.until(lambda: self.page(0).checkpoint_step >= step)

    def until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.005)

    def finish(self) -> Job:
        """Wait for all workers to end well; then end the servers, as the operator does."""
        for rank in [rank for rank in sorted(self.pids) if rank < self.workers]:
            code = self.wait(rank)
            assert code == 0, f"worker {rank} ended with {code}\n{self.output()}"
        for rank in sorted(self.pids):
            os.kill(self.pids[rank], signal.SIGTERM)
        for rank in sorted(self.pids):
            code = self.wait(rank)
            assert code in (0, 143), f"server {rank} ended with {code}\n{self.output()}"
        return self.job

    def close(self) -> None:
        """Leave no process behind."""
        for rank in sorted(self.pids):
            self.kill(rank)
        self.pids.clear()

    def output(self) -> str:
        """What all members wrote."""
        paths = (self.output_file(rank) for rank in self.ports)
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in paths if path.exists())

    def figures(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that belong to steps."""
        lines = (self.job.checkpoints() / "metrics.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if "loss" in line]


NewCrew = Callable[..., Crew]
