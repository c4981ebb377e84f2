"""Renew the lease in a thread of its own, so that a blocked event loop does not lose it.

Writes stay in the operator's event loop, which asks `leads` before each of them. If that event loop does not turn for
STUCK_LOOKS seconds, the lease is given up, so that another operator leads.
"""

import asyncio
import contextlib
import threading

from trainmaster.cluster.client import Client
from trainmaster.cluster.lease import Lease, LostError

LOOK_SECONDS = 1.0
# This counts looks, not seconds, because a process that was stopped for a while is not stuck.
STUCK_LOOKS = 60


class LeaseThread:
    """Hold a `Lease` in a thread of its own. All public methods are called in the operator's event loop."""

    def __init__(self, lease: Lease, client: Client, stuck_looks: int = STUCK_LOOKS) -> None:
        """Take a `client` that no other part uses: the thread opens and closes it."""
        self._lease = lease
        self._client = client
        self._stuck_looks = stuck_looks
        self._rounds = 0  # how often the operator's event loop has turned
        self._thread: threading.Thread | None = None
        self._loop = asyncio.new_event_loop()  # the thread's
        self._over = asyncio.Event()  # belongs to that loop; set to end the thread
        self.leading = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Return whether this operator may write at this moment."""
        return self._lease.leads

    @property
    def led_seconds(self) -> float:
        """Return for how many seconds this operator has led without a break.

        This has no meaning while it does not lead.
        """
        return self._lease.led_seconds

    async def run(self) -> None:
        """Take the lease when it is free, and renew it.

        If this is cancelled, the lease is still renewed until `release`.

        Raises:
            LostError: another operator leads now, or is to lead.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._hold, args=(loop, ended), name="lease", daemon=True)
        self._thread.start()
        while not ended.done():
            self._rounds += 1
            await asyncio.wait([ended], timeout=LOOK_SECONDS)
        await ended

    async def release(self) -> None:
        """Give the lease up, so that another operator leads at once. The caller writes nothing afterwards."""
        if self._thread:
            with contextlib.suppress(RuntimeError):  # the thread has ended by itself
                self._loop.call_soon_threadsafe(self._over.set)
            await asyncio.to_thread(self._thread.join)
        else:
            self._loop.close()

    def _hold(self, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(loop))
        except Exception as error:  # noqa: BLE001  it is raised in the operator's event loop
            outcome: Exception | None = error
        else:
            outcome = None
        with contextlib.suppress(RuntimeError):  # the operator's loop has ended
            loop.call_soon_threadsafe(_settle, ended, outcome)

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        await self._client.open()
        telling = asyncio.create_task(self._tell(loop))
        tasks = [asyncio.ensure_future(work) for work in (self._lease.run(), self._watch(), self._over.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, telling):
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            await self._lease.release()
            await self._client.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        await self._lease.leading.wait()
        loop.call_soon_threadsafe(self.leading.set)

    async def _watch(self) -> None:
        """Wait until the operator's event loop is stuck.

        Raises:
            LostError: it is.
        """
        seen, still = self._rounds, 0
        while still < self._stuck_looks:
            await asyncio.sleep(LOOK_SECONDS)
            still = still + 1 if self._rounds == seen else 0
            seen = self._rounds
        raise LostError("this operator's event loop is stuck, so another one is to lead")


def _settle(ended: "asyncio.Future[None]", outcome: Exception | None) -> None:
    if ended.done():
        return
    if outcome:
        ended.set_exception(outcome)
    else:
        ended.set_result(None)
