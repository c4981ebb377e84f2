"""A kubelet and all its agents in one process, for `bench operator`, `scale` and `hostile`.

The kubelet binds every new pod, says that it runs and has an address, and asks for the pod's own token. The agents
speak the heartbeat protocol as the real one does: one request held open, one more at once when something happens.
Training is a clock: a step every STEP_SECONDS, as many as the pod's plan asks for.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
from trainmaster.wire import codec, names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import (
    CheckpointRecord,
    ErrorReport,
    ExitReport,
    Heartbeat,
    Orders,
    RankProgress,
)

from bench.operator_api import MERGE_PATCH, Api, Document, Places
from tests.fakes.pod_agent import PodAgent

STEP_SECONDS = 0.1
LOAD_SECONDS = 0.5
STEPS_PER_CHECKPOINT = 50
REPORT_SECONDS = 0.1
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)  # as the agent's reporter has them
MOST_SHADOWS = 2

_addresses = itertools.count(2)


class Agent(PodAgent):
    """PID 1 of one pod, with its line to the operator."""

    def __init__(self, session: aiohttp.ClientSession, places: Places, token: str, pod: Document) -> None:
        super().__init__(pod)
        self._session = session
        self._places = places
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._plan = _plan(pod)
        self._began = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._shadows = 0
        self.answered = 0.0  # when it last had orders from the operator, in seconds of the monotonic clock
        self.beats = self.bodies = self.bytes = 0  # of answers
        self.ran: dict[int, float] = {}  # when it was told to run each attempt

    @property
    def running(self) -> bool:
        """Whether it trains."""
        return self.state == AgentState.RUNNING

    async def live(self) -> None:
        """Until it is told to leave."""
        trouble = 0
        while not (self.orders and self.orders.verb == Verb.EXIT):
            try:
                went_well = await self._beat(hold=not trouble)
            except (aiohttp.ClientError, OSError, TimeoutError):
                went_well = False
            trouble = 0 if went_well else trouble + 1
            if trouble:
                pause = PAUSES[min(trouble, len(PAUSES)) - 1]
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  no secret
        for task in self._tasks:
            task.cancel()

    async def _beat(self, *, hold: bool) -> bool:
        """Say how it is; whether orders came back."""
        body = codec.encode(self._says(hold=hold))
        if self._places.peer_port and self._shadows < MOST_SHADOWS:
            self._in_background(self._shadow(body))
        url = self._places.operator + names.HEARTBEAT_PATH
        timeout = aiohttp.ClientTimeout(total=12)
        async with self._session.post(url, data=body, headers=self._headers, timeout=timeout) as response:
            content = await response.read()
        self.beats, self.bodies, self.bytes = self.beats + 1, self.bodies + bool(content), self.bytes + len(content)
        if response.status not in (200, 204):
            return False
        self.answered = time.monotonic()
        if response.status == 200:
            self._obey(_decoded(content))
        return True

    async def _shadow(self, body: bytes) -> None:
        """The same words to the peer."""
        self._shadows += 1
        url = f"http://127.0.0.1:{self._places.peer_port}{names.HEARTBEAT_PATH}"
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self._session.post(url, data=body, headers=self._headers) as response:
                await response.read()
        self._shadows -= 1

    def _obey(self, orders: Orders) -> None:
        self.orders = orders
        if orders.verb == Verb.WAIT and self.attempt < orders.attempt and self.attempt:
            self.state, self.attempt, self.rendezvous, self.exit = AgentState.WAITING, orders.attempt, None, None
            self._in_background(self._tell())
        waits_for_it = self.state == AgentState.WAITING and orders.attempt == self.attempt
        if orders.verb == Verb.RUN and orders.roster and (orders.attempt > self.attempt or waits_for_it):
            self.ran.setdefault(orders.attempt, time.time())
            self.run(orders)
            self._began = time.monotonic() + LOAD_SECONDS
            self._in_background(self._train())

    async def _train(self) -> None:
        """What cannot wait for the held request: the start, the first step, the end."""
        await self._tell()
        await asyncio.sleep(self._began + STEP_SECONDS - time.monotonic())
        await self._tell()
        attempt = self.attempt
        await asyncio.sleep(self._plan["steps"] * STEP_SECONDS)
        if self.attempt == attempt:
            self.state = AgentState.FINISHED
            await self._tell()

    def fail(self) -> None:
        """Its rank raises an error."""
        error = ErrorReport("ValueError", "a bad batch", "train.py:7 in step")
        self.exit = ExitReport(self.attempt, 0, self._step(), exit_code=1, error=error)
        self.state = AgentState.FAILED
        self._in_background(self._tell())

    async def _tell(self) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self._beat(hold=False)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _step(self) -> int:
        taken = int((time.monotonic() - self._began) / STEP_SECONDS)
        return max(0, min(int(self._plan["steps"]), taken))

    def _says(self, *, hold: bool) -> Heartbeat:
        step = 0 if self.state == AgentState.WAITING else self._step()
        saved = step // STEPS_PER_CHECKPOINT * STEPS_PER_CHECKPOINT
        self.checkpoint = CheckpointRecord(saved, 1.7e9 + saved, f"{saved:064d}") if saved else None
        loss = 2.0 / (1 + step / 100)
        phase, resumed = _phase(step, self.state), 0 if step else None
        rank = RankProgress(self._first.index, step, phase, loss, 640.0, STEP_SECONDS, resumed_step=resumed)
        return self.heartbeat(rank, hold=hold)


@functools.lru_cache(maxsize=8)
def _decoded(content: bytes) -> Orders:
    """A roster is decoded once for all agents that get it: in a cluster, each does that on its own machine."""
    return codec.decode(Orders, content)


class Kubelet:
    """Looks for new pods once the file `go` is there, and starts an agent for each."""

    def __init__(self, api: Api, session: aiohttp.ClientSession, places: Places) -> None:
        self._api = api
        self._go = asyncio.Event()
        self._failed = 0.0  # when a rank was last made to fail
        self._session = session
        self._places = places
        self._agents: dict[str, Agent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it is killed."""
        report = asyncio.create_task(self._report())
        await self._go.wait()  # a watch costs the API server, and nobody watches the pods of plain requests
        async for kind, pod in self._api.list_and_watch("/api/v1/pods", names.LABEL_JOB):
            if kind == "DELETED" and (task := self._tasks.pop(pod["metadata"]["uid"], None)):
                self._agents.pop(pod["metadata"]["uid"], None)
                task.cancel()
            if kind != "ADDED" or pod["status"].get("phase") != "Pending" or pod["spec"].get("nodeName"):
                continue
            uid = pod["metadata"]["uid"]
            self._tasks[uid] = asyncio.create_task(self._pod(uid, pod))
        await report

    async def _pod(self, uid: str, pod: Document) -> None:
        name, path = pod["metadata"]["name"], f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        spec = {"audiences": [names.TOKEN_AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}
        token = await self._api.call("POST", f"{path}/serviceaccounts/default/token", {"spec": spec})
        target = {"kind": "Node", "name": "node-1"}
        await self._api.call("POST", f"{path}/pods/{name}/binding", {"metadata": {"name": name}, "target": target})
        pod = await self._say(f"{path}/pods/{name}", _running())
        self._agents[uid] = Agent(self._session, self._places, token["status"]["token"], pod)
        await self._agents[uid].live()
        del self._agents[uid]
        await self._say(f"{path}/pods/{name}", _succeeded())

    async def _say(self, path: str, status: Document) -> Document:
        return await self._api.call("PATCH", f"{path}/status", {"status": status}, MERGE_PATCH)

    async def _report(self) -> None:
        path, fail = Path(self._places.report), Path(self._places.report).with_suffix(".fail")
        while True:
            agents = list(self._agents.values())
            if os.path.exists(self._places.go):  # noqa: ASYNC240, PTH110  a file of this machine
                self._go.set()
            if os.path.exists(fail):  # noqa: ASYNC240, PTH110
                fail.unlink()
                self._failed = time.time()
                agents[len(agents) // 2].fail()
            words = {
                "agents": len(agents),
                "running": sum(agent.running for agent in agents),
                "beats": sum(agent.beats for agent in agents),
                "bodies": sum(agent.bodies for agent in agents),
                "bytes": sum(agent.bytes for agent in agents),
                "failed": self._failed,
                "ran": [list(agent.ran.items()) for agent in agents],
                "answered": sorted(agent.answered for agent in agents),
            }
            draft = path.with_suffix(".new")
            draft.write_text(json.dumps(words))
            os.replace(draft, path)  # noqa: PTH105  the reader never sees half of it
            await asyncio.sleep(REPORT_SECONDS)


def _phase(step: int, state: str) -> str:
    if state == AgentState.FINISHED:
        return "done"
    return "train" if step else "load"


def _plan(pod: Document) -> Document:
    variables = pod["spec"]["containers"][0]["env"]
    plan: Document = json.loads(next(v["value"] for v in variables if v["name"] == names.ENV_TRAINING))
    return plan


def _running() -> Document:
    number = next(_addresses)
    address = f"10.{244 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
    return {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], **_container({"running": {}})}


def _succeeded() -> Document:
    return {"phase": "Succeeded", **_container({"terminated": {"exitCode": 0, "reason": "Completed"}})}


def _container(state: Document) -> Document:
    container = {"name": names.MAIN_CONTAINER, "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    return {"containerStatuses": [{**container, "state": state}]}


async def main(places: Places) -> None:
    """Until it is killed."""
    async with Api(places) as api, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await Kubelet(api, session, places).run()


if __name__ == "__main__":
    asyncio.run(main(Places.load(sys.argv[1])))
