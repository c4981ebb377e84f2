"""Check whether agents can still reach this operator. If they cannot, the leader makes way for a standby.

Kubernetes takes a pod out of its Service when the pod is deleted, or when the kubelet of its node does not answer. The
process may live on and renew its lease. Then new connections of agents reach a standby, which has no orders to give.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from trainmaster.cluster import pod_reading
from trainmaster.cluster.client import Client, RefusalError
from trainmaster.cluster.lease import LostError
from trainmaster.loop import UnavailableError
from trainmaster.queueing import Key

LOOK_SECONDS = 2.0
FORBIDDEN_SECONDS = 600.0  # until the next try, if we may not read pods in our own namespace


class Reachability:
    """Look at the operator's own pod every LOOK_SECONDS."""

    def __init__(self, client: Client, pod: Key, leads: Callable[[], bool]) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        self._leads = leads

    async def run(self) -> None:
        """Watch until the pod is deleted, or leaves its Service, while this operator leads.

        An operator that was out of the Service before it led goes on leading: if all are out, as when the API server
        loses contact with every node, one must still lead.

        Raises:
            LostError: the pod is deleted or has left the Service.
        """
        was_reached = False
        while True:
            was_reached = self._leads() and await self._still_reached(was_reached)
            await asyncio.sleep(LOOK_SECONDS)

    async def _still_reached(self, was_reached: bool) -> bool:
        try:
            pod = pod_reading.read(await self._client.get(self._path)).replica
            is_gone, is_reached = pod.deleting, not pod.node_silent
        except RefusalError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                await asyncio.sleep(FORBIDDEN_SECONDS)
            is_gone, is_reached = error.status == HTTPStatus.NOT_FOUND, was_reached
        except UnavailableError:
            return was_reached
        if self._leads() and (is_gone or (was_reached and not is_reached)):
            raise LostError("agents are not led to this operator any more")
        return is_reached
