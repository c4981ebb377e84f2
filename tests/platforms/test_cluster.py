"""The Kubernetes platform keeps the contract, on a private etcd and API server. The test plays kubelet and agents."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import kopf
import pytest
from trainmaster.cluster.api_connection import ApiConnection
from trainmaster.cluster.cluster_platform import ClusterPlatform
from trainmaster.cluster.container import PodSettings
from trainmaster.cluster.controller import Address, Controller, OperatorOptions
from trainmaster.cluster.kopf_handlers import Operator
from trainmaster.core.states.observed import Replica
from trainmaster.listening.listener import Listener
from trainmaster.queueing import Key
from trainmaster.wire import names
from trainmaster.wire.agent_states import Verb

from tests.cluster.agents import Agent
from tests.cluster.apiserver import ApiServer
from tests.cluster.lab import MERGE_PATCH, TASK
from tests.platforms.contract import DELETES, EDITS, REFUSES, TELLS, Clause, clauses_for
from tests.ports import free_port

CAN = frozenset({EDITS, REFUSES, DELETES, TELLS})
_numbers = itertools.count(1)


class QuietController(Controller):
    """Everything of an operator but its loop: nothing happens on this platform that the test does not wish."""

    async def _serve(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        await self._listen("listen", Listener(self.intake.application()), self._options.listen)
        self._listens = True
        await asyncio.Event().wait()


class ClusterWorld:
    """A namespace with one job."""

    def __init__(self, server: ApiServer, controller: Controller, namespace: str, url: str) -> None:
        self.key, self.can = Key(namespace, "digits"), CAN
        self.controller = controller
        self._server = server
        self._url = url
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._core = f"/api/v1/namespaces/{namespace}"
        self._jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"

    @property
    def platform(self) -> ClusterPlatform:
        """That of the controller."""
        return self.controller._platform

    async def prepare(self) -> None:
        """Namespace, account and job."""
        await self._call("POST", "/api/v1/namespaces", {"metadata": {"name": self.key.namespace}})
        await self._call("POST", f"{self._core}/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"strategy": {"type": "AllReduce"}, "training": TASK, "workers": {"replicas": 2}}
        kind = {"apiVersion": names.API_VERSION, "kind": names.KIND}
        await self._call("POST", self._jobs, {**kind, "metadata": {"name": self.key.name}, "spec": spec})
        while not self.controller.ready or await self.platform.observe(self.key) is None:
            await self.news(0.1)

    async def close(self) -> None:
        """No agent calls any more."""
        for task in self._agents.values():
            task.cancel()
        await asyncio.gather(*self._agents.values(), return_exceptions=True)

    async def news(self, seconds: float) -> None:
        """The controller's queue has no listener here: look again."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.controller._queue.get(), seconds)

    async def start(self, replica: Replica) -> None:
        """As kubelet, the container runs; as agent, it calls and obeys."""
        address = f"10.244.1.{next(_numbers) % 250}"
        pod = await self._report(replica, {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]})
        bound = {"kind": "Pod", "apiVersion": "v1", "name": replica.name, "uid": replica.uid}
        spec = {"audiences": [names.TOKEN_AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}
        token = await self._call("POST", f"{self._core}/serviceaccounts/default/token", {"spec": spec})
        agent = Agent(self._url, token["status"]["token"], pod)
        self._agents[replica.uid] = asyncio.create_task(self._live(agent, replica))

    async def kill(self, replica: Replica) -> None:
        """As kubelet: the container is gone."""
        self._agents.pop(replica.uid).cancel()
        await self._ended(replica, 137)

    async def edit(self) -> None:
        """A user edits the spec."""
        await self._call("PATCH", f"{self._jobs}/{self.key.name}", {"spec": {"suspend": True}}, MERGE_PATCH)

    async def refuse(self, refused: bool) -> None:
        """Pods without their service account are refused; no quota controller runs beside this API server."""
        path = f"{self._core}/serviceaccounts"
        if refused:
            await self._call("DELETE", f"{path}/default")
        else:
            await self._call("POST", path, {"metadata": {"name": "default"}})
        # The admission looks at what its watch has told it, which comes later.
        pod = {"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        trial = functools.partial(self._server.try_call, "POST", f"{self._core}/pods?dryRun=All", pod)
        while ((await asyncio.to_thread(trial)).status == HTTPStatus.FORBIDDEN) != refused:  # noqa: ASYNC110 nobody rings
            await asyncio.sleep(0.05)

    async def told(self) -> list[str]:
        """Kubernetes events."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.key.namespace}/events"
        return [event["reason"] for event in (await self._call("GET", path))["items"]]

    def lose_next_reply(self) -> None:
        """Whether the watch tells before or after the answer is lost cannot be had at will."""

    async def _live(self, agent: Agent, replica: Replica) -> None:
        while True:
            await asyncio.to_thread(agent.beat, hold=True)
            orders = agent.orders
            if orders and orders.verb == Verb.EXIT:
                await self._ended(replica, orders.exit_code)
                return
            if orders and orders.attempt > agent.attempt:
                agent.attempt = orders.attempt

    async def _ended(self, replica: Replica, code: int) -> None:
        ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        container = {"name": names.MAIN_CONTAINER, "state": ended, "image": "", "imageID": "", "ready": False}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**container, "restartCount": 0}]}
        await self._report(replica, status)

    async def _report(self, replica: Replica, status: dict[str, Any]) -> dict[str, Any]:
        return await self._call("PATCH", f"{self._core}/pods/{replica.name}/status", {"status": status}, MERGE_PATCH)

    async def _call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        return await asyncio.to_thread(self._server.call, method, path, body, kind)


@contextlib.asynccontextmanager
async def cluster_world(server: ApiServer) -> AsyncIterator[ClusterWorld]:
    """With a controller of its own, without a loop."""
    listen, probes, readiness = (Address("127.0.0.1", free_port()) for _ in range(3))
    url = f"http://127.0.0.1:{listen.port}"
    login = kopf.ConnectionInfo(server=server.url, ca_path=str(server.certificate), token=server.token)
    namespace = f"contract-{next(_numbers)}"
    options = OperatorOptions(
        PodSettings(url, "trainer:test"), (namespace,), listen=listen, probes=probes, readiness=readiness
    )
    connection = ApiConnection(lambda: login)
    operator = Operator(options, QuietController(options, connection), connection)
    world = ClusterWorld(server, operator.controller, namespace, url)
    running = asyncio.create_task(operator.run())
    try:
        await world.prepare()
        yield world
    finally:
        await world.close()
        operator.end()
        await running


@pytest.mark.parametrize("clause", clauses_for(CAN), ids=lambda clause: clause.__name__)
async def test_the_cluster_platform_keeps_the_contract(clause: Clause, server: ApiServer, tmp_path: Path) -> None:
    async with cluster_world(server) as world:
        await clause(world)
