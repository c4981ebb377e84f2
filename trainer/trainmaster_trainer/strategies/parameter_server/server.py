"""A parameter server answers pulls and pushes for its shard, and keeps a copy of its neighbour's.

A server that starts takes its shard from its neighbour's copy where there is one, tells server 0 that it is there, and
answers workers from when server 0 has said which generation of tickets counts. Until then, and while server 0 sets all
servers back to a checkpoint, workers are told "later".
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from trainmaster.wire.names import EXIT_TERMINATED

from trainmaster_trainer import randomness
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.strategies import same_models
from trainmaster_trainer.strategies.parameter_server.compression import unpack_all
from trainmaster_trainer.strategies.parameter_server.coordinator import Coordinator
from trainmaster_trainer.strategies.parameter_server.options import ServerOptions
from trainmaster_trainer.strategies.parameter_server.pending_requests import Asker
from trainmaster_trainer.strategies.parameter_server.server_shard import Push, Shard
from trainmaster_trainer.strategies.parameter_server.whole import UndividedModel
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError, seconds_for
from trainmaster_trainer.transport.service import Answer, Handler, RequestRefusedError, Service

log = logging.getLogger(__name__)
READY_SECONDS = 2.0  # how long a worker's request waits for a server that is not ready
NEIGHBOUR_SECONDS = 0.3  # how often the copy is looked after
PATIENCE = 5.0
PAGE_SECONDS = 0.2  # how often a server's page is written
GOING_SECONDS = 0.02  # while it is not ready: that it goes on is to be told soon
ALONE_SECONDS = 1.0  # where all are told to stop, server 0 has heard of it by then


def serve(member: IndependentMember) -> int:
    """Answer until the training is over or this server is asked to stop. Return the exit code."""
    server = Server(member)
    server.start()
    if server.coordinator is not None:
        return server.coordinator.run()
    while not member.stop.wait(server.tell_progress()):
        member.check()
        member.seen(server.own.newest)
    server.wait_for_the_last_cut()
    return EXIT_TERMINATED


class Server:
    """Server is one parameter server."""

    def __init__(self, member: IndependentMember) -> None:
        self._member = member
        self._options = ServerOptions.read(member.options)
        ranks = member.directory.servers
        self.index = ranks.index(member.rank)
        self._count = len(ranks)
        whole = UndividedModel(member.task, self._count)
        self._neighbour = (self.index - 1) % self._count  # whose copy this server keeps
        kept = {self.index, self._neighbour}
        self.shards = {index: self._shard(whole, index) for index in kept}
        self.own = self.shards[self.index]
        self._copy_seconds = PATIENCE + max(seconds_for(shard.size) for shard in self.shards.values())
        self._copied_by: bytes | None = None  # the life of the backup that has everything
        self._edition = ""  # which of its primary's exports the copy here goes back to
        self._exports = 0
        self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="to copy")
        self._installed = threading.Condition(self.shards[self._neighbour].lock)
        self._generation = 0
        self._ready = threading.Event()
        self._complete = 0  # the last step that all servers have, as server 0 and workers say
        self._is_set_back = True  # it goes on from another step than it had, at its start too
        self._begun, self._begun_told = (
            (0, 0),
            0,
        )  # how often it was set back with the step it went on from; what is told
        self._cut: Message | None = None
        self._note: Any = None  # what server 0 knows of evaluations, for its successor
        self._shapes = whole.state().model_shapes()
        self.coordinator = Coordinator(member, self._options, whole, self.own) if self.index == 0 else None
        self._answers: dict[str, Handler] = {
            same_models.QUESTION: lambda *_: same_models.answer(self._shapes),
            "pull": self._pull,
            "push": self._push,
            "step": self._step,
            "copy push": self._push_to_copy,
            "copy": self._give_to_copy,
            "recover": self._give_back,
            "report": self._report,
            "go": self._go,
            "install": self._install,
            "begin": self._begin,
            "cut": self._make_cut,
            "fetch": self._give_cut,
            "settle": self._settle,
            "note": self._take_note,
        }

    def _shard(self, whole: UndividedModel, index: int) -> Shard:
        numerics = self._member.numerics if self._options.sync else Numerics()  # else the workers see to it
        return Shard(whole, index, self._options, numerics, self._member.settings.plan.seed)

    def start(self) -> None:
        """Start to answer, and beside that take the shard from the neighbour's copy if there is one."""
        member = self._member
        gone = self.coordinator.ticket_queue.gone if self.coordinator else lambda _caller: None
        Service(member.listener, member.identity, self.answer, gone, failed=member.failures.append)
        member.beside(self._come_up, "come up")

    def _come_up(self) -> None:
        if self._count > 1:
            self._recover()
            self._member.beside(self._keep_copy, "copy")
        if self.coordinator is not None:
            self.coordinator.reconcile_soon()
            return
        while not self._ready.is_set():
            try:
                self._member.links.ask(self._member.directory.servers[0], Message("announce"), 60.0)
                self._ready.wait(1.0)
            except (PeerLostError, PeerRefusedError) as error:
                log.info("Server 0 is not there yet: %s", error)

    def _recover(self) -> None:
        backup = self._member.directory.servers[(self.index + 1) % self._count]
        answer: Message | None = None
        while answer is None:
            try:
                answer = self._member.links.ask(backup, Message("recover", {"shard": self.index}), 60.0)
            except (PeerLostError, PeerRefusedError) as error:
                log.info("The neighbour is not there yet: %s", error)
        if answer.name == "shard":
            with self.own.lock:
                self.own.install(answer)
            log.info("Took the shard over from the neighbour's copy.")

    def tell_progress(self) -> float:
        """Update the progress page. Return after how many seconds to do so again.

        A server trains from when server 0 lets it answer. From which step it goes on is told again when all were set
        back to a checkpoint: what had been trained beyond that is lost.
        """
        progress = self._member.progress
        if not self._ready.is_set():
            progress.enter("load")
            return GOING_SECONDS
        times, first = self._begun
        if times != self._begun_told:
            self._begun_told = times
            progress.start(first, 0)
        elif progress.phase == "load":
            progress.enter("train")
        progress.step = max(first, self._complete)  # it may be set back at this moment
        progress.write()
        return PAGE_SECONDS

    def wait_for_the_last_cut(self) -> None:
        """Wait, when told to stop, until server 0 has this shard in a checkpoint, if all servers stop."""
        alone = time.monotonic() + ALONE_SECONDS
        while True:
            try:
                said = self._member.links.ask(self._member.directory.servers[0], Message("leaving"), 0.0, PATIENCE)
            except (PeerLostError, PeerRefusedError):
                return  # it has gone
            if said.values["over"] or (not said.values["needed"] and time.monotonic() > alone):
                return
            time.sleep(0.05)

    def answer(self, caller: Caller, request: Message) -> Answer:
        """Answer what a peer asks."""
        if request.name in self._answers:
            return self._answers[request.name](caller, request)
        if self.coordinator is not None:
            return self.coordinator.answer(caller, request)
        raise RequestRefusedError(f"a server cannot {request.name}")

    # Workers.

    def _pull(self, _caller: Caller, request: Message) -> Message:
        if not self._ready.wait(READY_SECONDS):
            return Message("later")
        with self.own.lock:
            with_buffers, step = bool(request.values.get("buffers")), request.values.get("step")
            return Message("parameters", {}, self.own.parameters(with_buffers, step))

    def _push(self, _caller: Caller, request: Message) -> Message:
        if not self._ready.wait(READY_SECONDS):
            return Message("later")
        request.tensors = unpack_all(self._options.compression, request.tensors, self.own.layout)
        push = Push.read(request)
        with self.own.lock:
            if request.values["generation"] != self._generation or not self._ready.is_set():
                return Message("stale")
            self._complete = max(self._complete, int(request.values.get("complete", 0)))
            copied = self._pass_on(push) if self.own.push(push) else None
        if copied is not None:
            copied.result()  # before the worker hears "ok", the copy has it too; others are served meanwhile
        return Message("ok")

    def _step(self, caller: Caller, request: Message) -> Answer:
        """Do push, next ticket and pull in one request, if there is one server: a round trip costs two wake-ups."""
        pushed = self._push(caller, request)
        if pushed.name == "later" or self.coordinator is None:
            return pushed
        said = dict(request.values)
        if pushed.name == "stale":
            del said["done"]
        return self.coordinator.ticket_queue.next(Asker(caller, said, self._with_parameters))

    def _with_parameters(self, order: Message) -> Message:
        if order.name == "ticket":
            with self.own.lock:
                order.tensors = self.own.parameters(with_buffers=self._options.sync)
        return order

    # The copy: this server's shard at its neighbour, and the neighbour's here.

    def _pass_on(self, push: Push) -> Future[None] | None:
        """Send the push to the copy, in the order in which pushes were taken in."""
        if self._copied_by is None:
            return None
        values = {**push.values(), "edition": self._edition_now, "keeper": self._copied_by.hex()}
        return self._copier.submit(self._send_to_copy, Message("copy push", values, push.tensors))

    def _send_to_copy(self, message: Message) -> None:
        """Send a push to the copy. If the copy is away, send no more: it fetches everything when it is back."""
        if self._copied_by is None or message.values["edition"] != self._edition_now:
            return
        backup = self._member.directory.servers[(self.index + 1) % self._count]
        try:
            self._member.links.ask(backup, message, 0.0, self._copy_seconds)
        except (PeerLostError, PeerRefusedError) as error:
            log.warning("The copy of this shard is away: %s", error)
            with self.own.lock:
                if message.values["edition"] == self._edition_now:
                    self._copied_by = None

    def _push_to_copy(self, _caller: Caller, request: Message) -> Message:
        wanted = request.values["edition"]
        if request.values["keeper"] != self._member.identity.life.hex():
            raise RequestRefusedError(
                "another process had the copy"
            )  # our predecessor, while all pushes wait for this answer
        with self._installed:  # a push may overtake the export that it belongs to
            if not self._installed.wait_for(lambda: self._edition == wanted, self._copy_seconds):
                raise RequestRefusedError("the copy did not arrive")
            self.shards[self._neighbour].push(Push.read(request))
        return Message("ok")

    def _give_to_copy(self, caller: Caller, _request: Message) -> Message:
        with self.own.lock:
            if not self._ready.is_set():
                return Message("later")
            if self._copied_by == caller.life:
                return Message("ok")
            self._copied_by = caller.life
            self._exports += 1
            answer = self.own.export()
            answer.values["edition"] = self._edition_now
            return answer

    @property
    def _edition_now(self) -> str:
        return f"{self._member.identity.life.hex()}-{self._exports}"

    def _keep_copy(self) -> None:
        rank = self._member.directory.servers[self._neighbour]
        while not self._member.stop.wait(NEIGHBOUR_SECONDS):
            try:
                answer = self._member.links.ask(rank, Message("copy"), 0.0, self._copy_seconds)
            except (PeerLostError, PeerRefusedError):
                continue
            if answer.name == "shard":
                with self._installed:
                    self.shards[self._neighbour].install(answer)
                    self._edition = answer.values["edition"]
                    self._installed.notify_all()

    def _give_back(self, _caller: Caller, request: Message) -> Message:
        copy = self.shards[request.values["shard"]]
        with copy.lock:
            return copy.export() if copy.loaded else Message("none")

    # Server 0.

    def _report(self, _caller: Caller, request: Message) -> Message:
        """Report the tickets in this shard. From now on it refuses pushes of older generations."""
        deadline = time.monotonic() + PATIENCE
        while not self.own.lock.acquire(timeout=0.1):
            if time.monotonic() > deadline:
                raise RequestRefusedError("busy")
        try:
            self._generation = request.values["generation"]
            applied = [[list(ticket), list(done)] for ticket, done in self.own.applied.items()]
            values = {"loaded": self.own.loaded, "branch": self.own.branch, "floor": self.own.floor, "applied": applied}
            return Message("report", {**values, "staleness": self.own.staleness, "note": self._note})
        finally:
            self.own.lock.release()

    def _take_note(self, _caller: Caller, request: Message) -> Message:
        self._note = request.values["evaluations"]
        return Message("ok")

    def _go(self, _caller: Caller, request: Message) -> Message:
        self._generation = request.values["generation"]
        self._complete = int(request.values.get("complete", self.own.newest))  # an older server 0 does not say
        if self._is_set_back:  # workers push at once: who looks later finds another step
            self._is_set_back, self._begun = False, (self._begun[0] + 1, self._complete)
        self._ready.set()
        return Message("ok")

    def _install(self, _caller: Caller, request: Message) -> Message:
        with self.own.lock:
            self._forget()
            self.own.install(request)
        return Message("ok")

    def _begin(self, _caller: Caller, request: Message) -> Message:
        """Begin with the weights that the task makes, also if this server was further, as another server was lost."""
        with self.own.lock, randomness.ONE_AT_A_TIME:
            self._forget()
            if self.own.version:
                randomness.seed_alike(self._member.settings.plan.seed)
                self.own.install(self._shard(UndividedModel(self._member.task, self._count), self.index).export())
            self.own.begin(request.values["branch"])
        return Message("ok")

    def _forget(self) -> None:
        self._ready.clear()
        self._is_set_back = True
        self._copied_by = None  # what the neighbour has is of another past

    def _make_cut(self, _caller: Caller, _request: Message) -> Message:
        with self.own.lock:
            self._cut = self.own.export(with_past=False)
            return Message("ok", {"staleness": self.own.staleness})

    def _give_cut(self, _caller: Caller, _request: Message) -> Message:
        cut, self._cut = self._cut, None
        if cut is None:
            raise RequestRefusedError("there is no cut")
        return cut

    def _settle(self, _caller: Caller, request: Message) -> Message:
        for shard in self.shards.values():
            with shard.lock:
                shard.settle(request.values["step"])
        return Message("ok")
