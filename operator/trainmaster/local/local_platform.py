"""Implement the loop's `Platform` on one machine: a replica is an agent process, the node is this machine."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import secrets
import signal
import time
import uuid
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import reason
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.situation import obstacles, revision
from trainmaster.core.states import actions, observed
from trainmaster.core.states.observed import ReplicaPhase
from trainmaster.intake import HeartbeatRefusedError, Intake, Speaker
from trainmaster.local import processes
from trainmaster.local.devices import devices_here, short_of_devices
from trainmaster.local.endings import ending
from trainmaster.local.variables import LOOPBACK, Site, agent_variables, grace_seconds
from trainmaster.local.workdir import Workdir
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.files import delete_folder
from trainmaster.wire.messages import Heartbeat

# Seconds from the end of the ranks' grace time to the end of their agent's.
_SLACK_SECONDS = 5.0
# One job writes its progress to a file: often enough for a curve of a script that ends within a minute.
_REFRESH_SECONDS = 1.0
_AWAY = ".away"


@dataclasses.dataclass
class _Place:
    """Hold one replica and its process."""

    replica: observed.Replica
    agent: processes.LocalAgent
    deleting: bool = False


@dataclasses.dataclass(frozen=True)
class PlatformListeners:
    """Hold whom to call. `on_change` is called when something happened that the loop should look at."""

    on_change: Callable[[], None]
    on_output: processes.OnOutput
    on_event: Callable[[actions.PostEvent], None]


class LocalPlatform:
    """Hold one job, its processes, and their heartbeats."""

    def __init__(
        self, job: TrainingJob, workdir: Workdir, site: Site, token: str, listeners: PlatformListeners
    ) -> None:
        self.job = job
        self.key = Key(job.namespace, job.name)
        self.site = site
        self.intake = Intake(self._verify, lambda _: listeners.on_change())
        self._workdir = workdir
        self._token = token
        self._listeners = listeners
        self._places: dict[str, _Place] = {}
        self._refused: dict[str, observed.Obstacle] = {}  # replicas that can never be started, by name
        self._past: list[observed.Replica] = []  # replicas that have ended, with their last heartbeats
        self._ending: set[asyncio.Task[None]] = set()
        self._status_kept = True

    # --- what the loop asks for ---

    async def observe(self, key: Key) -> tuple[TrainingJob, observed.Observed] | None:
        """Return the job and its processes as they are now; None for another job."""
        if key != self.key:
            return None
        replicas = tuple(self._look(place) for place in self._places.values())
        refused = tuple(self._refused.values())
        return self.job, observed.Observed(
            replicas, refused=refused, kinds=frozenset(), refresh_seconds=_REFRESH_SECONDS
        )

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:  # noqa: ARG002 there is one job
        """Keep the status, and write status.json. If the file cannot be written (a full disk), training goes on."""
        self.job = self.job.model_copy(update={"status": status})
        self._keep_status()
        self._listeners.on_change()

    async def apply(self, job: TrainingJob, action: actions.Action) -> None:  # noqa: ARG002 likewise
        """Carry out one action."""
        match action:
            case actions.CreateReplica():
                await self._create(action)
            case actions.DeleteReplica(name=name, uid=uid):
                self._delete(name, uid)
            case actions.GiveOrders(orders=orders):
                for uid, order in orders:
                    self.intake.give_orders(uid, order)
            case actions.PostEvent():
                self._listeners.on_event(action)
            case actions.EnsureObject() | actions.DeleteObject() | actions.DeleteJob():
                pass  # one machine makes no objects beside replicas, and the user's file is not deleted

    # --- what the session asks for ---

    def suspend(self) -> None:
        """Suspend the job as `spec.suspend` does: ranks save and end, and their agents exit."""
        spec = self.job.spec.model_copy(update={"suspend": True})
        self.job = self.job.model_copy(update={"spec": spec})
        self._listeners.on_change()

    def kill(self) -> None:
        """Kill all agents at once. The warm parent then kills their ranks."""
        for place in self._places.values():
            place.agent.signal(signal.SIGKILL)

    @property
    def empty(self) -> bool:
        """Return whether no process is left. One that had ended and was replaced keeps its place, for its log."""
        return all(place.agent.process.returncode is not None and not place.deleting for place in self._places.values())

    def heartbeats(self) -> list[Heartbeat]:
        """Return the last heartbeat of every agent of this run, also of those that have ended."""
        told = (self.intake.heartbeat(place.replica.uid) for place in self._places.values())
        past = (replica.heartbeat for replica in self._past)
        return [heartbeat for heartbeat in (*past, *told) if heartbeat]

    @property
    def past(self) -> observed.Observed:
        """Return the replicas of this run that have ended, as they were heard last."""
        return observed.Observed(tuple(self._past))

    async def agents_gone(self) -> None:
        """Wait until the agents have exited, as ordered, but not for long for one that does not say that it leaves.

        One that does may still have the last lines told to a tracker, and bounds that itself.
        """
        deadline = time.monotonic() + _SLACK_SECONDS
        while left := [place for place in self._places.values() if not place.agent.output.done()]:
            beats = [self.intake.heartbeat(place.replica.uid) for place in left]
            if time.monotonic() >= deadline and not any(beat and beat.state == AgentState.LEAVING for beat in beats):
                return
            await asyncio.wait([place.agent.output for place in left], timeout=1.0)

    async def close(self) -> None:
        """End all agents that still run."""
        for name, place in [*self._places.items()]:
            self._delete(name, place.replica.uid)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- how ---

    def _look(self, place: _Place) -> observed.Replica:
        replica = dataclasses.replace(self.intake.heard(place.replica), deleting=place.deleting)
        code = place.agent.process.returncode
        if code is None:
            return replica
        phase = ReplicaPhase.FAILED if code else ReplicaPhase.SUCCEEDED
        return dataclasses.replace(replica, phase=phase, ending=ending(code, self._log(place.replica.name)))

    def _log(self, name: str) -> Path:
        return self._workdir.logs / f"{name}.log"

    async def _create(self, wish: actions.CreateReplica) -> None:
        name = names.replica_name(self.job.name, wish.role, wish.index, wish.incarnation)
        if name in self._places or name in self._refused:
            return
        uid = str(uuid.uuid4())
        scratch = self.site.scratch / name

        def ended() -> None:
            self._beside(asyncio.to_thread(_clear, scratch))
            self._listeners.on_change()

        variables = agent_variables(self.job, wish, uid, scratch, self.site)
        log = self._log(name)
        try:
            scratch.mkdir(exist_ok=True)
            agent = await processes.start(name, variables, log, self._listeners.on_output, ended)
        except OSError as error:
            problem = f"{name} cannot be started: {reason(error)}"
            if error.errno != errno.E2BIG:
                raise UnavailableError(problem) from error
            self._refused[name] = observed.Obstacle(obstacles.TOO_LARGE, problem, time.time(), name)
            self._listeners.on_change()
            return
        replica = observed.Replica(
            wish.role, wish.index, wish.incarnation, name, uid, ReplicaPhase.RUNNING, time.time(), LOOPBACK, "localhost"
        )
        short = short_of_devices(devices_here(os.environ), self.job.spec.roles[wish.role], self.job.spec.spares)
        made_of = revision.revision_of(self.job, wish.role)
        replica = dataclasses.replace(replica, revision=made_of, short_of_devices=short)
        self._places[name] = _Place(replica, agent)

    def _delete(self, name: str, uid: str) -> None:
        place = self._places.get(name)
        if place is None or place.replica.uid != uid or place.deleting:
            return
        place.deleting = True
        self._beside(self._end(name, place))

    async def _end(self, name: str, place: _Place) -> None:
        await processes.stop(place.agent, grace_seconds() + _SLACK_SECONDS)
        self._past.append(self.intake.heard(place.replica))
        self._places.pop(name, None)
        self.intake.forget(place.replica.uid)
        self._listeners.on_change()

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _keep_status(self) -> None:
        try:
            self._workdir.write_status(self.job.status)
            self._status_kept = True
        except OSError as error:
            if self._status_kept:
                message = f"{self._workdir.status_file} cannot be written: {reason(error)}. Training goes on."
                with contextlib.suppress(OSError):
                    self._listeners.on_event(actions.PostEvent("Warning", "StatusNotWritten", message))
            self._status_kept = False

    async def _verify(self, token: str) -> Speaker:
        """Accept the token of this run, for any replica that it started.

        Raises:
            RefusedError: it is another token.
        """
        if not secrets.compare_digest(token, self._token):
            raise HeartbeatRefusedError("the token is not that of this run", HTTPStatus.UNAUTHORIZED)
        return Speaker("", self._check)

    def _check(self, heartbeat: Heartbeat) -> None:
        for place in self._places.values():
            replica = place.replica
            if replica.uid == heartbeat.pod_uid:
                if (replica.role, replica.index) == (heartbeat.role, heartbeat.index):
                    return
                raise HeartbeatRefusedError(f"{replica.name} may not speak for {heartbeat.role}-{heartbeat.index}")
        raise HeartbeatRefusedError("no replica of this run has that uid")


def _clear(scratch: Path) -> None:
    """Remove the scratch folder of an ended agent.

    It is renamed first: ranks of a killed agent may live some ms longer.
    """
    away = scratch.with_suffix(_AWAY)
    with contextlib.suppress(OSError):
        scratch.rename(away)  # from now on no rank can create a file in it
    delete_folder(away)
