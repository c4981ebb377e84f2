"""One life of a simulated operator: the real loop, queue and intake over a simulated platform, until it dies."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from random import Random

from trainmaster import loop
from trainmaster.intake import Intake, Posted, Speaker
from trainmaster.queueing import WorkQueue
from trainmaster.wire.messages import Heartbeat, Orders

from tests.platforms import clock
from tests.platforms.agents import AwayError
from tests.platforms.server import ApiServer
from tests.platforms.simulated import Gate, SimulatedPlatform, View


@dataclass
class Operator:
    """Born with an empty memory."""

    server: ApiServer
    random: Random
    gate: Gate
    lag: float
    view: View = field(init=False)
    platform: SimulatedPlatform = field(init=False)
    _tasks: list[asyncio.Task[object]] = field(default_factory=list)
    _requests: dict[asyncio.Task[Posted | None], None] = field(default_factory=dict)

    def start(self) -> None:
        """Read everything once, then work."""
        queue = WorkQueue()
        self._intake = Intake(_trust, queue.add)
        self.view = View(self.server, self.random, queue.add, self._intake.forget, self.lag)
        self.platform = SimulatedPlatform(self.server, self.view, self._intake, self.gate)
        self.view.open()
        reconciler = loop.Reconciler(self.platform, clock.now)
        self._tasks = [asyncio.create_task(loop.run(reconciler, queue, workers=2))]

    def die(self) -> None:
        """Nothing of it is left: no memory, no task, no open request."""
        self.view.close()
        for task in [*self._tasks, *self._requests]:
            task.cancel()

    def believed(self, uid: str) -> Heartbeat | None:
        """What it takes for the newest word of this pod's agent."""
        return self._intake.heartbeat(uid)

    def overhear(self, heartbeat: Heartbeat) -> None:
        """A heartbeat whose sender waits for nothing. The line ends, if this operator does."""
        if any(pod.replica.uid == heartbeat.pod_uid for pod in self.view.pods.values()):
            request = asyncio.create_task(self._intake._answer(heartbeat))
            self._requests[request] = None
            request.add_done_callback(lambda done: self._requests.pop(done, None))

    async def receive(self, heartbeat: Heartbeat) -> Orders | None:
        """As over HTTP: an agent that is not known yet is sent away, an operator that dies breaks the line."""
        if not any(pod.replica.uid == heartbeat.pod_uid for pod in self.view.pods.values()):
            raise AwayError("403: no such pod")
        request = asyncio.create_task(self._intake._answer(heartbeat))
        self._requests[request] = None
        request.add_done_callback(lambda done: self._requests.pop(done, None))
        with contextlib.suppress(asyncio.CancelledError):
            posted = await request
            return posted.orders if posted else None
        current = asyncio.current_task()
        if current and current.cancelling():
            raise asyncio.CancelledError
        raise AwayError("connection reset")


async def _trust(_token: str) -> Speaker:
    """Tokens are the affair of other tests."""
    return Speaker("", lambda _: None)
