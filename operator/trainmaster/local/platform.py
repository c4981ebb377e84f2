"""LocalPlatform: the loop's world on one machine. A replica is an agent process, a node is this machine."""

import asyncio
import dataclasses
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import actions, environment, observed
from trainmaster.intake import Intake, RefusedError
from trainmaster.local import processes
from trainmaster.local.devices import device_environment
from trainmaster.local.workdir import Workdir
from trainmaster.queueing import Key
from trainmaster.wire import codec, names
from trainmaster.wire.messages import Heartbeat


@dataclasses.dataclass
class _Place:
    """One replica: what it is, and its process."""

    replica: observed.Replica
    agent: processes.Agent
    deleting: bool = False


class LocalPlatform:
    """Holds one job. `on_change` is called when something happened that the loop should look at."""

    def __init__(
        self,
        job: TrainingJob,
        workdir: Workdir,
        on_change: Callable[[Key], None],
        on_output: processes.OnOutput,
        on_event: Callable[[actions.PostEvent], None],
    ) -> None:
        self.job = job
        self.key = Key(job.namespace, job.name)
        self.intake = Intake(self._verify, on_change)
        self.operator_url = ""
        self.warm_socket: Path | None = None
        self.folder = Path.cwd()  # that of the YAML file: where a script's relative path starts
        self._workdir = workdir
        self._token = workdir.write_token()
        self._on_change = on_change
        self._on_output = on_output
        self._on_event = on_event
        self._places: dict[str, _Place] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def observe(self, key: Key) -> tuple[TrainingJob, observed.Observed] | None:
        """The job and its processes as they are now."""
        replicas = tuple(self._look(place) for place in self._places.values())
        return self.job, observed.Observed(replicas, service=True)

    async def write_status(self, job: TrainingJob, status: TrainingJobStatus) -> None:
        """Keep it, and write status.json."""
        self._workdir.write_status(status)
        self.job = self.job.model_copy(update={"status": status})
        self._on_change(self.key)

    async def apply(self, job: TrainingJob, action: actions.Action) -> None:
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
                self._on_event(action)
            case actions.CreateService() | actions.DeleteJob():
                pass  # no names to serve on one machine; the user's file is the user's

    async def agents_gone(self, timeout: float = 5.0) -> None:
        """Wait until the agents have followed their order to leave."""
        waits = [place.agent.output for place in self._places.values()]
        if waits:
            await asyncio.wait(waits, timeout=timeout)

    async def close(self) -> None:
        """End all agents."""
        await processes.stop([place.agent for place in self._places.values()])
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _look(self, place: _Place) -> observed.Replica:
        code = place.agent.process.returncode
        update: dict[str, object] = {
            "heartbeat": self.intake.heartbeat(place.replica.uid),
            "deleting": place.deleting,
        }
        if code is not None:
            update["phase"] = observed.FAILED if code else observed.SUCCEEDED
            update["ending"] = observed.Ending(code, "Ended" if code >= 0 else "Killed", _exit_message(code))
        return dataclasses.replace(place.replica, **update)  # type: ignore[arg-type]

    async def _create(self, wish: actions.CreateReplica) -> None:
        name = names.replica_name(self.job.name, wish.role, wish.index, wish.incarnation)
        if name in self._places:
            return
        uid = str(uuid.uuid4())
        scratch = self._workdir.scratch / name
        scratch.mkdir(exist_ok=True)
        variables = self._variables(wish, uid, scratch)
        log = self._workdir.logs / f"{name}.log"
        agent = await processes.start(name, variables, log, self._on_output, lambda: self._on_change(self.key))
        replica = observed.Replica(
            wish.role, wish.index, wish.incarnation, name, uid, observed.RUNNING, time.time(), "127.0.0.1", "localhost"
        )
        self._places[name] = _Place(replica, agent)
        self._on_change(self.key)

    def _variables(self, wish: actions.CreateReplica, uid: str, scratch: Path) -> dict[str, str]:
        """What the agent reads. The user's own variables come first: ours are not theirs to change."""
        spec = self.job.spec.roles[wish.role]
        plan = environment.training_plan(self.job)
        folder = plan.working_directory or str(self.folder)
        plan = dataclasses.replace(plan, checkpoint_shared=True, working_directory=folder)
        return {
            **processes.inherited_environment(self.folder, Path.cwd()),
            **device_environment(spec, wish.index),
            **{variable.name: variable.value or "" for variable in spec.env},
            **environment.agent_environment(self.job, wish.role, wish.index, wish.incarnation),
            names.ENV_TRAINING: codec.encode(plan).decode(),
            names.ENV_POD_UID: uid,
            names.ENV_ADDRESS: "127.0.0.1",
            names.ENV_OPERATOR: self.operator_url,
            names.ENV_TOKEN_FILE: str(self._workdir.scratch / "token"),
            names.ENV_CHECKPOINTS: str(self._checkpoints()),
            names.ENV_SCRATCH: str(scratch),
            **({names.ENV_WARM_SOCKET: str(self.warm_socket)} if self.warm_socket else {}),
            names.ENV_PARENT_PID: str(os.getpid()),
        }

    def _checkpoints(self) -> Path:
        storage = self.job.spec.checkpoint.storage
        return Path(storage.path) if storage and storage.path else self._workdir.checkpoints

    def _delete(self, name: str, uid: str) -> None:
        place = self._places.get(name)
        if place is None or place.replica.uid != uid or place.deleting:
            return
        place.deleting = True
        task = asyncio.create_task(self._end(name, place))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, name: str, place: _Place) -> None:
        await processes.stop([place.agent])
        self._places.pop(name, None)
        self.intake.forget(place.replica.uid)
        self._on_change(self.key)

    async def _verify(self, token: str, heartbeat: Heartbeat) -> None:
        """A token per run, and a replica that we started."""
        if token != self._token:
            raise RefusedError("the token is not that of this run")
        for place in self._places.values():
            replica = place.replica
            if replica.uid == heartbeat.pod_uid:
                if (replica.role, replica.index) == (heartbeat.role, heartbeat.index):
                    return
                raise RefusedError(f"{replica.name} may not speak for {heartbeat.role}-{heartbeat.index}")
        raise RefusedError("no replica of this run has that uid")


def _exit_message(code: int) -> str:
    return f"the agent ended with exit code {code}" if code >= 0 else f"the agent was ended by signal {-code}"
