"""The ticket queue is where workers ask server 0 for tickets, report them, and wait for the next.

Service threads answer here; the coordinator's main thread opens and closes it. No thread waits for a ticket: the
thread that changes the books answers all workers for which that means an order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from trainmaster.wire import codec
from trainmaster.wire.messages import CheckpointRecord

from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.strategies.parameter_server.pending_requests import HOLD_SECONDS, Asker, PendingRequests
from trainmaster_trainer.strategies.parameter_server.tickets import DoneTicket, Ticket, TicketBook
from trainmaster_trainer.transport.frame import Message, Values
from trainmaster_trainer.transport.handshake import Caller


class TicketQueue:
    """TicketQueue holds the books of server 0 and the workers that wait for them. `changing` is around every change."""

    def __init__(self, member: IndependentMember, committed: Callable[[], int]) -> None:
        self._member = member
        self._committed = committed  # the step of the newest checkpoint that stands
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.due = threading.Condition(lock)  # the main thread waits for it: more than a line is to be written
        self.book: TicketBook | None = None  # None while the servers are asked what they have
        self.generation = 0
        self.is_unsettled = False  # a server has started since this generation began
        self.has_ended = False  # all steps are done and saved
        self.evaluates = True  # a worker evaluates after the end; else the figures are known
        self.last: CheckpointRecord | None = None  # the last checkpoint, where this process has committed it
        self.is_over = False  # and it is known how good the model is
        self.trial: int | None = None  # the step whose model a worker is to evaluate, while there are no tickets
        self.moments: dict[int, float] = {}  # when each step ended that is not told yet
        self.told: Values = dict.fromkeys(("loss", "speed", "seconds"), "nan")  # of the last ones that are
        self.present: set[Caller] = set()  # the workers that are connected
        self._pending_requests = PendingRequests()

    def open(self) -> None:
        """Start the thread that lets no worker wait for longer than `HOLD_SECONDS`."""
        self._member.beside(self._release_the_impatient, "patience")

    def next(self, asker: Asker) -> Future[Message]:
        """Note how a worker's last ticket went. Return what it should do next."""
        with self.changing():
            self.present.add(asker.caller)
            self._note(asker.caller, asker.values)
            # Earlier processes of a worker that died and is there again hold tickets.
            book, caller = self.book, asker.caller
            for holder in book.holders if book else []:
                if book and isinstance(holder, Caller) and holder.rank == caller.rank and holder.life != caller.life:
                    book.drop(holder)
            order = self._order(asker)
            if order is None:
                self._pending_requests.add(asker)
        if order is not None:
            asker.tell(order)
        return asker.answer

    def claim(self, values: Values) -> Message:
        """Answer whether this share may be part of its step. With backup workers, the late ones may not."""
        with self.changing():
            current = self.book is not None and values["generation"] == self.generation
            accepted = bool(current and self.book and self.book.claim(Ticket(*values["ticket"])))
            return Message("ok", {"accepted": accepted})

    def gone(self, caller: Caller) -> None:
        """Free the ticket of a process that hung up."""
        with self.changing():
            self.present.discard(caller)
            self._pending_requests.forget(caller)
            if self.book is not None:
                self.book.drop(caller)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of the books within. After that, answer the workers for which the change means an order."""
        with self.changed:
            yield
            self.changed.notify_all()
            orders = self._pending_requests.take(self._order) if self._has_orders() else []
        for asker, order in orders:
            asker.tell(order)

    def _has_orders(self) -> bool:
        """Return whether a worker that waits may get an order now: most changes mean nothing to them."""
        return (
            self.has_ended
            or self.trial is not None
            or self._pending_requests.are_impatient
            or (self.book is not None and not self.is_unsettled and self.book.has_ticket)
        )

    def _order(self, asker: Asker) -> Message | None:
        """Return what a worker should do next; None while there is nothing yet."""
        if self.has_ended:
            first = min(self._member.directory.workers, default=asker.caller.rank)
            last = {"last": codec.to_plain(self.last)} if self.last else {}
            return self._reply("end", {"evaluate": self.evaluates and asker.caller.rank == first, **last})
        # Of the workers that are connected, the one of the lowest rank evaluates.
        if self.trial is not None and not self.is_unsettled:
            examiner = min(self.present, key=lambda caller: caller.rank, default=None)
            if asker.caller == examiner:
                return self._reply("evaluate", {"step": self.trial})
        # Is it told to stop alone, or are all? That shows within a moment; then server 0 needs its work for a cut.
        stopping, all_stop = asker.values.get("stopping"), self._member.stop.is_set()
        ticket = None if stopping and not all_stop else self._take(asker.caller)
        if ticket is not None:
            return self._reply("ticket", {"ticket": ticket})
        if not asker.is_impatient:
            return None
        return self._reply("leave" if stopping and not (all_stop and not self.is_over) else "wait", {})

    def _release_the_impatient(self) -> None:
        """Answer workers before their time is up: a worker that hears nothing at all takes this server for dead."""
        while True:
            time.sleep(HOLD_SECONDS / 4)
            with self.changing():
                pass

    def _note(self, caller: Caller, values: Values) -> None:
        """Note what the worker says of its last ticket."""
        if self.book is None or values.get("generation") != self.generation:
            return
        if values.get("done"):
            self._count(self.book, Ticket(*values["ticket"]), DoneTicket(*values["done"]))
        elif values.get("ticket"):
            self.book.refuse(caller)

    def _count(self, book: TicketBook, ticket: Ticket, done: DoneTicket) -> None:
        before = book.complete
        book.done(ticket, done)
        if book.complete > before:
            now = time.monotonic()
            self.moments |= dict.fromkeys(range(before + 1, book.complete + 1), now)
        if book.complete >= book.gate:
            self.due.notify_all()

    def _take(self, caller: Caller) -> Ticket | None:
        if self.book is None or self.is_unsettled:
            return None
        directory = self._member.directory
        # As many as when all are there. Random numbers follow from step and share, so a synchronous model would depend
        # on who was away for a moment; who is there computes the shares of the others as well.
        shares = directory.roster.workers or max(len(directory.workers), 1)
        return self.book.take(caller, min(shares, self._member.settings.plan.global_batch_size))

    def _reply(self, name: str, values: Values) -> Message:
        complete = self.book.complete if self.book else 0
        counts = {"generation": self.generation, "complete": complete, "saved": self._committed()}
        return Message(name, {**self.told, **counts, **values})
