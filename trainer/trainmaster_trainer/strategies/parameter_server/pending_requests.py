"""PendingRequests holds the requests of workers that have asked what to do next, while there is nothing yet.

No thread waits with them. The thread that changes the books decides for each of them again what it should do, and sends
it: with a synchronous step, the worker that comes last has all others told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from trainmaster_trainer.transport.frame import Message, Values
from trainmaster_trainer.transport.handshake import Caller

HOLD_SECONDS = 1.0  # how long a worker's question is held open


def as_it_is(order: Message) -> Message:
    """Return the order without any addition."""
    return order


@dataclass(eq=False)
class Asker:
    """Hold a worker that waits, and what it said when it asked. `dress` adds what the order is to bring along."""

    caller: Caller
    values: Values
    dress: Callable[[Message], Message] = as_it_is
    until: float = field(default_factory=lambda: time.monotonic() + HOLD_SECONDS)
    answer: Future[Message] = field(default_factory=Future)

    @property
    def is_impatient(self) -> bool:
        """Return whether it has waited for as long as it may."""
        return time.monotonic() > self.until

    def tell(self, order: Message) -> None:
        """Send it the answer. Call this without any lock: the answer may be sent from this thread."""
        try:
            message = self.dress(order)
        except Exception as error:  # noqa: BLE001 (goes on to who called `next`, who tells the main thread)
            self.answer.set_exception(error)
        else:
            self.answer.set_result(message)


class PendingRequests:
    """PendingRequests holds the askers in the order in which they came. The caller holds the books' lock."""

    def __init__(self) -> None:
        self._waiting: list[Asker] = []

    def add(self, asker: Asker) -> None:
        """Add an asker."""
        self._waiting.append(asker)

    def forget(self, caller: Caller) -> None:
        """Drop the askers of a caller that has hung up."""
        self._waiting = [asker for asker in self._waiting if asker.caller != caller]

    @property
    def are_impatient(self) -> bool:
        """Return whether an asker has waited for as long as it may. The first has waited for longest."""
        return bool(self._waiting) and self._waiting[0].is_impatient

    def take(self, decide: Callable[[Asker], Message | None]) -> list[tuple[Asker, Message]]:
        """Remove and return the askers for which there is an order now, each with its order."""
        orders = [(asker, decide(asker)) for asker in self._waiting]
        self._waiting = [asker for asker, order in orders if order is None]
        return [(asker, order) for asker, order in orders if order is not None]
