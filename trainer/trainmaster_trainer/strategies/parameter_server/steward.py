"""What server 0 does besides holding a shard: gives out tickets, cuts checkpoints, writes metrics, calls the end.

All of it can be found again: which tickets are done is what all shards have in them, so a server 0 that comes back asks
the servers (`_reconcile`). That happens whenever a server starts: a new generation of tickets begins, and pushes that
belong to an older one are refused. Where a shard is lost with its copy, all are set back to the newest checkpoint.

Checkpoints are consistent cuts: no ticket beyond the step of a cut is given out before all servers have put a copy of
their shard aside; then training goes on, and the copies are fetched and written in the background.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from trainmaster_trainer.checkpoint.resume import resume
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.independent import Member
from trainmaster_trainer.journal import Journal
from trainmaster_trainer.strategies.parameter_server.askers import HOLD_SECONDS, Asker, Askers
from trainmaster_trainer.strategies.parameter_server.options import Options
from trainmaster_trainer.strategies.parameter_server.shard import Shard
from trainmaster_trainer.strategies.parameter_server.tickets import Done, Ticket, TicketBook
from trainmaster_trainer.strategies.parameter_server.whole import Whole
from trainmaster_trainer.transport.frame import Message, Values
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError, Question
from trainmaster_trainer.transport.service import Answer, RefusalError

log = logging.getLogger(__name__)
EXIT_STOPPED = 143
LONGEST_WAIT_SECONDS = 10.0  # for the end, of who said how good the model is
LOOK_SECONDS = 0.02  # how often the main thread writes what was done: it must not take the steps' time
SERVERS_SECONDS = 30.0
ALONE_SECONDS = 1.0  # told to stop, server 0 stays so long for workers that are away: they may be calling again


class Steward:
    """Server 0's second duty. Service threads answer; `run` is the main thread's."""

    def __init__(self, member: Member, options: Options, whole: Whole, own: Shard) -> None:
        self._member, self._options, self._whole, self._own = member, options, whole, own
        self._plan = member.settings.plan
        self._saver = Saver(member.settings, member.alone())
        self._journal: Journal | None = None
        self._cut = 0  # the step of the newest cut
        self._saved = 0  # of the newest one that was brought to the saver
        self._generation = 0
        self._book: TicketBook | None = None
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # the books, as answers depend on them
        self._due = threading.Condition(lock)  # the main thread waits for it: more than a line is to be written
        self._moments: dict[int, float] = {}  # when each step ended that is not told yet
        self._told: Values = dict.fromkeys(("loss", "speed", "seconds"), "nan")
        self._present: set[Caller] = set()  # the workers that are connected
        self._last_seen = 0.0  # when one of them was, after the order to stop
        self._unsettled = False  # a server has started since the last generation
        self._ended = self._over = False
        self._result: dict[str, float] | None = None
        self._askers = Askers()
        self._answers: dict[str, Callable[[Caller, Values], Message]] = {
            "claim": self._claim,
            "result": self._take_result,
            "leaving": self._leaving,
        }

    # In service threads.

    def answer(self, caller: Caller, request: Message) -> Answer:
        """What workers and servers ask of server 0 alone."""
        if request.name == "announce":
            self.reconcile_soon()
            return Message("ok")
        if request.name == "next":
            return self.next(Asker(caller, request.values))
        if request.name not in self._answers:
            raise RefusalError(f"a server cannot {request.name}")
        with self._changing():
            return self._answers[request.name](caller, request.values)

    def next(self, asker: Asker) -> Future[Message]:
        """A worker says how its last ticket went; what it should do next."""
        with self._changing():
            self._present.add(asker.caller)
            self._note(asker.caller, asker.values)
            self._askers.add(asker)
        return asker.answer

    def reconcile_soon(self) -> None:
        """A server has started."""
        with self._changing():
            self._unsettled = True
            self._due.notify_all()

    def gone(self, caller: Caller) -> None:
        """A process hung up: its ticket goes to another."""
        with self._changing():
            self._present.discard(caller)
            self._askers.forget(caller)
            if self._book is not None:
                self._book.drop(caller)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """The books may be changed within. After it, whoever waited for that is answered."""
        with self._changed:
            yield
            self._changed.notify_all()
            orders = self._askers.take(self._order)
        for asker, order in orders:
            asker.tell(order)

    def _order(self, asker: Asker) -> Message | None:
        """What a worker should do next; None while there is nothing yet."""
        if self._ended:
            first = min(self._member.directory.workers, default=asker.caller.rank)
            return self._reply("end", {"evaluate": asker.caller.rank == first})
        # Is it told to stop alone, or are all? That shows within a moment; then server 0 needs its work for a cut.
        stopping, all_stop = asker.values.get("stopping"), self._member.stop.is_set()
        ticket = None if stopping and not all_stop else self._take(asker.caller)
        if ticket is not None:
            return self._reply("ticket", {"ticket": ticket})
        if not asker.is_impatient:
            return None
        return self._reply("leave" if stopping and not (all_stop and not self._over) else "wait", {})

    def _release_the_impatient(self) -> None:
        """A worker that hears nothing at all takes us for dead."""
        while True:
            time.sleep(HOLD_SECONDS / 4)
            with self._changing():
                pass

    def _note(self, caller: Caller, values: Values) -> None:
        """What the worker says of its last ticket."""
        if self._book is None or values.get("generation") != self._generation:
            return
        if values.get("done"):
            self._count(self._book, Ticket(*values["ticket"]), Done(*values["done"]))
        elif values.get("ticket"):
            self._book.refuse(caller)

    def _count(self, book: TicketBook, ticket: Ticket, done: Done) -> None:
        before = book.complete
        book.done(ticket, done)
        if book.complete > before:
            now = time.monotonic()
            self._moments |= dict.fromkeys(range(before + 1, book.complete + 1), now)
        if self._is_pressing():
            self._due.notify_all()

    def _take(self, caller: Caller) -> Ticket | None:
        if self._book is None or self._unsettled:
            return None
        for holder in self._book.holders:
            if isinstance(holder, Caller) and holder.rank == caller.rank and holder.life != caller.life:
                self._book.drop(holder)  # its predecessor
        shares = max(len(self._member.directory.workers), 1)
        return self._book.take(caller, min(shares, self._plan.global_batch_size))

    def _reply(self, name: str, values: Values) -> Message:
        complete = self._book.complete if self._book else 0
        counts = {"generation": self._generation, "complete": complete, "saved": self._saver.committed_step}
        return Message(name, {**self._told, **counts, **values})

    def _claim(self, _caller: Caller, values: Values) -> Message:
        current = self._book is not None and values["generation"] == self._generation
        accepted = bool(current and self._book and self._book.claim(Ticket(*values["ticket"])))
        return Message("ok", {"accepted": accepted})

    def _leaving(self, _caller: Caller, _values: Values) -> Message:
        """Another server was told to stop: whether its shard is still needed, for the cut with which all stop."""
        return Message("ok", {"needed": self._member.stop.is_set() and not self._over, "over": self._over})

    def _take_result(self, _caller: Caller, values: Values) -> Message:
        self._result = dict(values["figures"])
        self._due.notify_all()
        self._changed.wait_for(lambda: self._over, LONGEST_WAIT_SECONDS)
        return Message("ok" if self._over else "later")

    # In the main thread.

    def run(self) -> int:
        """Keep the books until the training is over and somebody says so; the exit code."""
        threading.Thread(target=self._release_the_impatient, name="patience", daemon=True).start()
        self._saver.prepare()
        while True:
            with self._changed:
                self._due.wait_for(self._is_pressing, LOOK_SECONDS)
            self._member.check()
            self._member.seen(self._journal.step if self._journal else 0)
            try:
                self._turn()
            except (PeerLostError, PeerRefusedError) as error:
                log.warning("A server is away: %s", error)
                self.reconcile_soon()
            if self._member.stop.is_set() and self._may_leave():
                self._saver.wait(needed=False)
                return 0 if self._over else EXIT_STOPPED

    def _is_pressing(self) -> bool:
        book = self._book
        at_gate = book is not None and book.complete >= book.gate > self._cut
        return at_gate or self._unsettled or (self._result is not None and not self._over)

    def _turn(self) -> None:
        if self._unsettled:
            self._reconcile()
        self._tell_steps()
        book = self._book
        if book is not None and book.complete >= book.gate > self._cut:
            self._save(book.gate)
        if self._result is not None and not self._over and self._journal is not None:
            self._journal.finish(self._plan.steps, self._result)
            with self._changing():
                self._over = True
        self._member.progress.write()

    def _may_leave(self) -> bool:
        """Asked to stop: first a cut at the newest step that has been begun."""
        with self._changing():
            book = self._book
            if book is None or self._over or self._ended:
                return True
            book.gate = min(book.gate, max(book.newest_begun, book.complete))
            leave = book.complete >= book.gate and book.gate <= self._saved
            return leave or self._is_alone()

    def _is_alone(self) -> bool:
        """Nobody is there, nor will be, to bring to its end what has been begun: there will be no cut."""
        if self._present or not self._last_seen:
            self._last_seen = time.monotonic()
        return time.monotonic() > self._last_seen + ALONE_SECONDS

    def _tell_steps(self) -> None:
        """Completed steps into metrics, progress page and log."""
        if self._book is None or self._journal is None:
            return
        with self._changed:
            finished = self._book.finished()
        for step, shares in finished:
            self._tell_step(step, shares)
        if finished:
            progress = self._member.progress
            speeds = {"speed": progress.samples_per_second, "seconds": progress.step_seconds}
            self._told = {name: str(figure) for name, figure in {"loss": progress.loss, **speeds}.items()}

    def _tell_step(self, step: int, shares: list[Done]) -> None:
        if self._journal is None:
            return
        size = sum(done.size for done in shares)
        loss = sum(done.loss * done.size for done in shares) / max(size, 1)
        ended = self._moments.pop(step, None)
        self._journal.stepped(
            step, loss, size, self._saver.committed_step, {"staleness": self._own.staleness}, ended=ended
        )

    def _save(self, step: int) -> None:
        """A cut at `step`: nothing beyond it has begun, everything up to it is in all shards."""
        if self._journal is None:
            return
        self._ask_servers(Message("cut"))
        self._cut = step
        self._open_gate()
        shards = self._ask_servers(Message("fetch"))
        state = self._whole.join([_state(shards[rank]) for rank in sorted(shards)])
        last = step == self._plan.steps
        if last:
            self._member.progress.enter("save")
        self._saver.save(step, state, before_commit=self._journal.sync)
        self._saved = step
        if last or self._member.stop.is_set():
            self._saver.wait(needed=last)
        self._ask_servers(Message("settle", {"step": self._saver.committed_step}))
        if last:
            self._end()

    def _end(self) -> None:
        self._member.progress.enter("evaluate", self._saver.committed_step)
        with self._changing():
            self._ended = True

    def _open_gate(self) -> None:
        """The next step at which a checkpoint is due."""
        with self._changing():
            if self._book is not None and not self._member.stop.is_set():
                every = self._plan.checkpoint_every
                first = max(self._cut + 1, self._book.complete)
                self._book.gate = min(-(-first // every) * every, self._plan.steps)

    def _ask_servers(self, message: Message) -> dict[int, Message]:
        ranks = self._member.directory.servers
        return self._member.links.ask_all({rank: Question(message) for rank in ranks}, SERVERS_SECONDS)

    def _reconcile(self) -> None:
        """A new generation, from what the servers have."""
        with self._changed:
            self._unsettled = False
            self._book = None
            self._moments.clear()
            self._cut = self._saved  # a cut that was not fetched is lost
            self._generation = secrets.randbits(48)  # not torch's: seeded alike, it would be our predecessor's again
        generation = {"generation": self._generation}
        reports = [answer.values for answer in self._ask_servers(Message("report", generation)).values()]
        belong_together = all(report["loaded"] for report in reports) and len({r["branch"] for r in reports}) == 1
        book = self._recall(reports) if belong_together else self._set_back()
        self._ask_servers(Message("go", generation))
        with self._changed:
            self._book = book
        self._open_gate()
        if book.complete >= self._plan.steps and self._saved >= self._plan.steps:
            self._end()

    def _recall(self, reports: list[Values]) -> TicketBook:
        """All shards are there. Done is what is in all of them."""
        floor = min(report["floor"] for report in reports)
        self._cut = self._saved = max(self._saved, floor)
        book = TicketBook(floor, self._plan.steps, self._options.bound, self._options.spare)
        applied = [{Ticket(*ticket): Done(*done) for ticket, done in report["applied"]} for report in reports]
        seen = {ticket: done for shard in applied for ticket, done in shard.items()}
        everywhere = {
            ticket: done
            for ticket, done in seen.items()
            if all(ticket.step <= r["floor"] or ticket in shard for r, shard in zip(reports, applied, strict=True))
        }
        book.recall(seen, everywhere)
        if self._journal is None:
            self._begin_journal(book.complete)
        log.info("All shards are there; going on after step %d.", book.complete)
        return book

    def _set_back(self) -> TicketBook:
        """A shard is lost, or nothing has begun: everybody goes back to the newest checkpoint."""
        self._saver.wait(needed=False)
        self._whole.found = None
        step = resume(self._member.settings, self._member.alone(), self._whole).step
        found = self._whole.found
        branch = {"branch": secrets.token_hex(8)}
        self._ask_servers(_install(found, step, branch) if found else Message("begin", branch))
        self._cut = self._saved = step
        self._begin_journal(step)
        return TicketBook(step, self._plan.steps, self._options.bound, self._options.spare)

    def _begin_journal(self, step: int) -> None:
        self._journal = Journal(self._member.settings, self._member.progress, step, self._saved)


def _state(shard: Message) -> State:
    return State(dict(zip(shard.values["names"], shard.tensors, strict=False)), shard.values["scalars"])


def _install(state: State, step: int, branch: Values) -> Message:
    """A whole model's state, of which each shard takes its own."""
    values = {"names": list(state.tensors), "scalars": state.scalars, "floor": step, "newest": step}
    tensors = [tensor.contiguous() for tensor in state.tensors.values()]
    return Message("install", {**values, **branch, "applied": [], "waiting": []}, tensors)
