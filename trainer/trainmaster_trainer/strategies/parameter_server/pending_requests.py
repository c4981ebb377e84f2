"""PendingRequests: workers that have asked what to do next, while there is nothing yet.

No thread waits with them. Whatever changes the books, the thread that did it asks for each of them again what it should
do, and sends it: with a synchronous step, the worker that comes last has all others told.
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
    """The order, and nothing with it."""
    return order


@dataclass(eq=False)
class Asker:
    """A worker that waits, and what it said when it asked. `dress` adds what the order is to bring along."""

    caller: Caller
    values: Values
    dress: Callable[[Message], Message] = as_it_is
    until: float = field(default_factory=lambda: time.monotonic() + HOLD_SECONDS)
    answer: Future[Message] = field(default_factory=Future)

    @property
    def is_impatient(self) -> bool:
        """Whether it has been held for long enough."""
        return time.monotonic() > self.until

    def tell(self, order: Message) -> None:
        """Answer it. Called without any lock: it may be sent from here."""
        try:
            message = self.dress(order)
        except Exception as error:  # noqa: BLE001 (goes on to who called `next`, who tells the main thread)
            self.answer.set_exception(error)
        else:
            self.answer.set_result(message)


class PendingRequests:
    """All of them, in the order in which they came. The caller holds the books' lock."""

    def __init__(self) -> None:
        self._waiting: list[Asker] = []

    def add(self, asker: Asker) -> None:
        """One more."""
        self._waiting.append(asker)

    def forget(self, caller: Caller) -> None:
        """It has hung up."""
        self._waiting = [asker for asker in self._waiting if asker.caller != caller]

    @property
    def are_impatient(self) -> bool:
        """Whether one is: the first has waited for longest."""
        return bool(self._waiting) and self._waiting[0].is_impatient

    def take(self, decide: Callable[[Asker], Message | None]) -> list[tuple[Asker, Message]]:
        """Those for whom there is an order now; they do not wait any more."""
        orders = [(asker, decide(asker)) for asker in self._waiting]
        self._waiting = [asker for asker, order in orders if order is None]
        return [(asker, order) for asker, order in orders if order is not None]
