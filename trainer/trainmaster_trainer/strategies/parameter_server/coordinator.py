"""The coordinator is server 0's second duty: it keeps the books, cuts checkpoints, writes metrics, ends the training.

All of it can be found again: which tickets are done is what all shards have in them, so a server 0 that comes back asks
the servers (`_reconcile`). That happens whenever a server starts: a new generation of tickets begins, and pushes that
belong to an older one are refused. Where a shard is lost with its copy, all are set back to the newest checkpoint.

Checkpoints are consistent cuts: no ticket beyond the step of a cut is given out before all servers have put a copy of
their shard aside; then training goes on, and the copies are fetched and written in the background.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace

from trainmaster.wire.names import EXIT_TERMINATED

from trainmaster_trainer.carried import EVALUATIONS
from trainmaster_trainer.checkpoint.resume import resume
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.journal import Journal
from trainmaster_trainer.strategies.parameter_server.options import ServerOptions
from trainmaster_trainer.strategies.parameter_server.pending_requests import Asker
from trainmaster_trainer.strategies.parameter_server.server_shard import Shard
from trainmaster_trainer.strategies.parameter_server.ticket_queue import TicketQueue
from trainmaster_trainer.strategies.parameter_server.tickets import DoneTicket, Ticket, TicketBook, metrics_of
from trainmaster_trainer.strategies.parameter_server.whole import UndividedModel
from trainmaster_trainer.transport.frame import Message, Values
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError, Question
from trainmaster_trainer.transport.service import Answer, RequestRefusedError

log = logging.getLogger(__name__)
LONGEST_WAIT_SECONDS = 10.0  # for the end, of who said how good the model is
LOOK_SECONDS = 0.02  # how often the main thread writes what was done: it must not take the steps' time
SERVERS_SECONDS = 30.0
ALONE_SECONDS = 1.0  # told to stop, server 0 stays so long for workers that are away: they may be calling again


class Coordinator:
    """Coordinator is server 0's second duty. Service threads answer requests; `run` is for the main thread."""

    def __init__(self, member: IndependentMember, options: ServerOptions, whole: UndividedModel, own: Shard) -> None:
        self._member, self._options, self._whole, self._own = member, options, whole, own
        self._plan = member.settings.plan
        self._saver = Saver(member.settings, member.alone())
        self.ticket_queue = TicketQueue(member, lambda: self._saver.committed_step)
        self._journal: Journal | None = None
        self._cut = 0  # the step of the newest cut
        self._saved = 0  # of the newest one that was brought to the saver
        self._last_seen = 0.0  # when a worker was, after the order to stop
        self._result: dict[str, float] | None = None
        self._evaluations = Evaluations(self._plan)
        self._figures: tuple[int, dict[str, float]] | None = None  # that a worker has told, after which step
        self._counted_by: int | None = None  # which worker said how many samples there are; None: a checkpoint, or none

    # In service threads.

    def answer(self, caller: Caller, request: Message) -> Answer:
        """Answer what workers and servers ask of server 0 alone."""
        answers: dict[str, Callable[[], Answer]] = {
            "next": lambda: self.ticket_queue.next(Asker(caller, request.values)),
            "claim": lambda: self.ticket_queue.claim(request.values),
            "samples": lambda: self._compare_samples(caller, request.values),
            "announce": self._announce,
            "leaving": self._leaving,
            "evaluated": lambda: self._take_figures(request.values),
            "result": lambda: self._take_result(request.values),
        }
        if request.name not in answers:
            raise RequestRefusedError(f"a server cannot {request.name}")
        return answers[request.name]()

    def _announce(self) -> Message:
        self.reconcile_soon()
        return Message("ok")

    def _compare_samples(self, caller: Caller, values: Values) -> Message:
        """Return the number of samples from a checkpoint, or else from the first worker: others compare theirs."""
        with self.ticket_queue.changed:
            if not self._saver.dataset:
                self._saver.dataset, self._counted_by = int(values["count"]), caller.rank
            return Message("samples", {"count": self._saver.dataset, "rank": self._counted_by})

    def reconcile_soon(self) -> None:
        """Note that a server has started, so that the main thread reconciles."""
        with self.ticket_queue.changing():
            self.ticket_queue.is_unsettled = True
            self.ticket_queue.due.notify_all()

    def _leaving(self) -> Message:
        """Tell a server that was told to stop whether its shard is still needed, for the cut with which all stop."""
        over = self.ticket_queue.is_over
        return Message("ok", {"needed": self._member.stop.is_set() and not over, "over": over})

    def _take_result(self, values: Values) -> Message:
        """Take the figures with which a worker has evaluated the model; answer when they are written down."""
        with self.ticket_queue.changed:
            self._result = dict(values["figures"])
            self.ticket_queue.due.notify_all()
            self.ticket_queue.changed.wait_for(lambda: self.ticket_queue.is_over, LONGEST_WAIT_SECONDS)
            return Message("ok" if self.ticket_queue.is_over else "later")

    def _take_figures(self, values: Values) -> Message:
        """Take the figures of the model after a step, while no ticket is given out."""
        with self.ticket_queue.changing():
            self._figures = int(values["step"]), dict(values["figures"])
            self.ticket_queue.trial = None
            self.ticket_queue.due.notify_all()
        return Message("ok")

    # In the main thread.

    def run(self) -> int:
        """Keep the books until the training is over or this server is asked to stop. Return the exit code."""
        self.ticket_queue.open()
        self._saver.prepare()
        try:
            return self._keep_books()
        except NonFiniteLossError as error:
            self._saver.date(error)
            raise

    def _keep_books(self) -> int:
        while True:
            with self.ticket_queue.changed:
                self.ticket_queue.due.wait_for(self._is_pressing, LOOK_SECONDS)
            self._member.check()
            self._saver.check()
            self._member.seen(self._journal.step if self._journal else 0)
            try:
                self._turn()
            except (PeerLostError, PeerRefusedError) as error:
                log.warning("A server is away: %s", error)
                self.reconcile_soon()
            if self._member.stop.is_set() and self._may_leave():
                self._saver.wait(needed=False)
                self._saver.check()
                return 0 if self.ticket_queue.is_over else EXIT_TERMINATED

    def _is_pressing(self) -> bool:
        book = self.ticket_queue.book
        at_gate = book is not None and book.complete >= book.gate > self._cut
        if at_gate and self.ticket_queue.trial is not None:
            return self.ticket_queue.is_unsettled
        return at_gate or self.ticket_queue.is_unsettled or (self._result is not None and not self.ticket_queue.is_over)

    def _turn(self) -> None:
        if self.ticket_queue.is_unsettled:
            self._reconcile()
        self._tell_steps()
        book = self.ticket_queue.book
        if book is not None and book.complete >= book.gate > self._cut:
            self._stand_at_gate(book.gate)
        if self._result is not None and not self.ticket_queue.is_over and self._journal is not None:
            is_told = self._evaluations.step == self._saved
            last = self._saved if self._evaluations.stopped else max(self._plan.steps, self._saved)
            self._journal.finish(last, self._result, is_told=is_told)
            with self.ticket_queue.changing():
                self.ticket_queue.is_over = True
        self._member.progress.write()

    def _may_leave(self) -> bool:
        """Return whether server 0, asked to stop, may leave: the newest step that has begun is complete and saved."""
        with self.ticket_queue.changing():
            book = self.ticket_queue.book
            if book is None or self.ticket_queue.is_over or self.ticket_queue.has_ended:
                return True
            book.gate = min(book.gate, max(book.newest_begun, book.complete))
            leave = book.complete >= book.gate and book.gate <= self._saved
            return leave or self._is_alone()

    def _is_alone(self) -> bool:
        """Return whether no worker has been there for `ALONE_SECONDS`, so that what has begun will not be finished."""
        if self.ticket_queue.present or not self._last_seen:
            self._last_seen = time.monotonic()
        return time.monotonic() > self._last_seen + ALONE_SECONDS

    def _tell_steps(self) -> None:
        """Write the completed steps to metrics, progress page and log."""
        if self.ticket_queue.book is None or self._journal is None:
            return
        with self.ticket_queue.changed:
            finished = self.ticket_queue.book.finished()
        for step, shares in finished:
            self._tell_step(step, shares)
        if finished:
            self._journal.write()
            progress = self._member.progress
            speeds = {"speed": progress.samples_per_second, "seconds": progress.step_seconds}
            told: Values = {name: str(figure) for name, figure in {"loss": progress.loss, **speeds}.items()}
            self.ticket_queue.told = {**told, "metrics": metrics_of(finished[-1][1])}

    def _tell_step(self, step: int, shares: list[DoneTicket]) -> None:
        if self._journal is None:
            return
        size = sum(done.size for done in shares)
        loss = sum(done.loss * done.size for done in shares) / max(size, 1)
        ended = self.ticket_queue.moments.pop(step, None)
        dropped = self._plan.global_batch_size - size  # in shares that came too late: `trainmaster audit` counts them
        metrics = metrics_of(shares)
        figures: Values = {"staleness": self._own.staleness, **({"dropped_samples": dropped} if dropped else {})}
        figures |= {"metrics": metrics} if metrics else {}
        self._journal.stepped(step, loss, size, self._saver.committed_step, figures, ended=ended)

    def _stand_at_gate(self, step: int) -> None:
        """Do what is due after `step`, all of which is in all shards and after which nothing has begun: look, save."""
        stops = self._member.stop.is_set()
        urgent = False
        if stops:
            self.ticket_queue.trial = None
        elif self._evaluations.due(step):
            if self._figures is None or self._figures[0] != step:
                with self.ticket_queue.changing():
                    self.ticket_queue.trial = step
                return
            evaluated = self._figures
            self._tell_steps()
            urgent = self._evaluations.take(*evaluated)
            self._figures = None
            if self._journal is not None:
                self._journal.evaluated(self._evaluations)
        is_new = self._evaluations.step == step
        note = Message("note", {"evaluations": self._evaluations.plain()})
        if is_new and not urgent:
            self._ask_servers(note)
        if stops or urgent or self._saver.due(step):
            self._save(step, urgent=urgent)
        if is_new and urgent:  # who does not find the note evaluates again, and saves
            self._ask_servers(note)
        if not self.ticket_queue.has_ended:
            self._cut = step
            self._open_gate()

    def _save(self, step: int, *, urgent: bool = False) -> None:
        """Make a cut at `step`: no later ticket has begun, and all up to it are in all shards.

        Training goes on while it is fetched and saved, unless it is `urgent`.
        """
        if self._journal is None:
            return
        self._ask_servers(Message("cut"))
        self._cut = step
        if not urgent:
            self._open_gate()
        shards = self._ask_servers(Message("fetch"))
        states = [
            State(dict(zip(shard.values["names"], shard.tensors, strict=False)), shard.values["scalars"])
            for _, shard in sorted(shards.items())
        ]
        state = self._whole.join(states)
        self._save_as(step, state)
        if urgent or self._member.stop.is_set():
            self._saver.wait(needed=False)
        self._ask_servers(Message("settle", {"step": self._saver.committed_step}))
        if self._is_last(step):
            self._end()

    def _is_last(self, step: int) -> bool:
        return step >= self._plan.steps or bool(self._evaluations.stopped)

    def _save_as(self, step: int, state: State) -> None:
        """Write a checkpoint; wait for it only if it is the last one."""
        assert self._journal is not None  # noqa: S101 (whoever saves has one)
        sync, is_last = self._journal.sync, self._is_last(step)
        if self._evaluations.are_on:
            state = replace(state, scalars={**state.scalars, EVALUATIONS: self._evaluations.plain()})
        if is_last:
            self._member.progress.enter("save")
        self._saver.save(step, state, before_commit=sync)
        self._saved = step
        if is_last:
            self._saver.insist(lambda: self._saver.save(step, state, before_commit=sync), self._member.stop.is_set)

    def _end(self) -> None:
        self._member.progress.enter("evaluate", self._saver.committed_step)
        if self._evaluations.are_on and self._evaluations.step == self._saved:
            self._result, self.ticket_queue.evaluates = dict(self._evaluations.figures), False
        with self.ticket_queue.changing():
            self.ticket_queue.last, self.ticket_queue.has_ended = self._saver.last.record, True

    def _open_gate(self) -> None:
        """Set the gate to the next step at which a checkpoint is due."""
        with self.ticket_queue.changing():
            if self.ticket_queue.book is not None and not self._member.stop.is_set():
                first = max(self._cut + 1, self.ticket_queue.book.complete)
                gates = (
                    -(-first // every) * every
                    for every in (self._plan.checkpoint_every, self._plan.evaluate_every)
                    if every
                )
                self.ticket_queue.book.gate = min(*gates, self._plan.steps)

    def _ask_servers(self, message: Message) -> dict[int, Message]:
        ranks = self._member.directory.servers
        return self._member.links.ask_all({rank: Question(message) for rank in ranks}, SERVERS_SECONDS)

    def _reconcile(self) -> None:
        """Begin a new generation from what the servers have."""
        with self.ticket_queue.changed:
            self.ticket_queue.is_unsettled = False
            self.ticket_queue.book = self.ticket_queue.trial = None
            self.ticket_queue.moments.clear()
            self._cut = self._saved  # a cut that was not fetched is lost
            self.ticket_queue.generation = secrets.randbits(
                48
            )  # not torch's: seeded alike, it would be our predecessor's again
        generation = {"generation": self.ticket_queue.generation}
        reports = [answer.values for answer in self._ask_servers(Message("report", generation)).values()]
        belong_together = all(report["loaded"] for report in reports) and len({r["branch"] for r in reports}) == 1
        book = self._recall(reports) if belong_together else self._set_back()
        self._ask_servers(Message("go", {**generation, "complete": book.complete}))
        with self.ticket_queue.changed:
            self.ticket_queue.book = book
        self._open_gate()
        if self._saved >= book.complete and self._is_last(book.complete):
            self._end()

    def _recall(self, reports: list[Values]) -> TicketBook:
        """Rebuild the books when all shards are there. Tickets that are in all shards are done."""
        floor = min(report["floor"] for report in reports)
        self._cut = self._saved = max(self._saved, floor)
        book = TicketBook(floor, self._plan.steps, self._options.bound, self._options.spare)
        applied = [{Ticket(*ticket): DoneTicket(*done) for ticket, done in report["applied"]} for report in reports]
        seen = {ticket: done for shard in applied for ticket, done in shard.items()}
        everywhere = {
            ticket: done
            for ticket, done in seen.items()
            if all(ticket.step <= r["floor"] or ticket in shard for r, shard in zip(reports, applied, strict=True))
        }
        book.recall(seen, everywhere)
        notes = [report["note"] for report in reports if report.get("note")]
        if notes and self._evaluations.are_on and not self._evaluations.step:
            self._evaluations.restore(max(notes, key=lambda note: note["step"]))
        if self._journal is None:
            self._begin_journal(book.complete, self._saved)
        log.info("All shards are there; going on after step %d.", book.complete)
        return book

    def _set_back(self) -> TicketBook:
        """Set all servers back to the newest checkpoint, as a shard is lost or nothing has begun."""
        self._saver.wait(needed=False)
        self._whole.found = None
        alone = self._member.alone()
        resumed = resume(self._saver.store, self._member.settings, alone, self._whole).settled(alone)
        found, step = self._whole.found, resumed.step
        self._saver.go_on_from(resumed.durable_step)
        if resumed.dataset:
            with self.ticket_queue.changed:
                self._saver.dataset, self._counted_by = resumed.dataset, None
        self._evaluations.begin_anew()
        if found and EVALUATIONS in found.scalars and self._evaluations.are_on and not resumed.begins:
            self._evaluations.restore(found.scalars[EVALUATIONS])
        self._whole.found = None  # as large as the model and its optimizer, and not needed again
        branch = {"branch": secrets.token_hex(8)}
        self._ask_servers(_install(found, step, branch) if found else Message("begin", branch))
        self._cut = self._saved = step
        self._begin_journal(step, resumed.durable_step)
        if found and resumed.is_borrowed:
            self._save_as(step, found)
        return TicketBook(step, self._plan.steps, self._options.bound, self._options.spare)

    def _begin_journal(self, step: int, durable_step: int) -> None:
        self._journal = Journal(
            self._member.settings, self._member.progress, step, durable_step, evaluated=self._evaluations.step
        )


def _install(state: State, step: int, branch: Values) -> Message:
    """Return the message with a whole model's state, of which each server takes its own part."""
    values = {"names": list(state.tensors), "scalars": state.scalars, "floor": step, "newest": step, "step": step}
    tensors = [tensor.contiguous() for tensor in state.tensors.values()]
    return Message("install", {**values, **branch, "past": 0, "applied": [], "waiting": []}, tensors)
