"""Run the worker's loop: take a ticket, pull the model, compute the share's gradient, push it, again.

A worker keeps nothing that a successor would need. It waits for a server that is away; if the generation of its ticket
is over, it gives the ticket back and drops its gradient. Told to stop, it leaves when server 0 needs it no more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor
from trainmaster.wire import codec
from trainmaster.wire.messages import CheckpointRecord
from trainmaster.wire.names import EXIT_TERMINATED

from trainmaster_trainer import randomness
from trainmaster_trainer.answers import loss_of
from trainmaster_trainer.checkpoint.manifest_check import check_same_dataset, check_same_everywhere
from trainmaster_trainer.collating import arrays_told
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import WHOLE, Batch, Batches, Share
from trainmaster_trainer.flat_buffers import FlatLayout, adopt
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.model_guard import ForwardState
from trainmaster_trainer.strategies import same_models
from trainmaster_trainer.strategies.outside_changes import OutsideChanges
from trainmaster_trainer.strategies.parameter_server.compression import Packer
from trainmaster_trainer.strategies.parameter_server.options import ServerOptions
from trainmaster_trainer.strategies.parameter_server.tickets import Ticket
from trainmaster_trainer.strategies.parameter_server.whole import UndividedModel
from trainmaster_trainer.transport.frame import Message, Values
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError, Question
from trainmaster_trainer.validation import Evaluator

log = logging.getLogger(__name__)
PATIENCE = math.inf  # a server that does not come back is the operator's business, and a full cluster is waited for
LATER_SECONDS = 0.05


def train(member: IndependentMember) -> int:
    """Work until there are no more tickets. Return the exit code."""
    try:
        return _work(member)
    except PeerLostError:
        if not member.stop.is_set():
            raise
        return EXIT_TERMINATED  # no server is there to say goodbye to


def _work(member: IndependentMember) -> int:
    worker = Worker(member)
    order = worker.next({})
    while order.name not in ("end", "leave"):
        order = worker.obey(order)
    if order.name == "leave":
        return EXIT_TERMINATED
    worker.finish(bool(order.values["evaluate"]))
    return 0


class Worker:
    """Worker holds a whole model whose parameters lie where the servers' answers are received."""

    def __init__(self, member: IndependentMember) -> None:
        self._member = member
        self._options = ServerOptions.read(member.options)
        self._servers = member.directory.servers
        self._batches: Batches = member.batches()
        whole = UndividedModel(member.task, len(self._servers))
        self._shapes = whole.state().model_shapes()
        self._model = whole.model.to(member.device)
        member.numerics.attach(self._model, member.device)
        OutsideChanges("ParameterServer", self._model, lambda: dict(self._model.named_parameters()))
        self._landing = [torch.empty(buffer.shape, dtype=buffer.dtype) for buffer in self._buffers()]
        compression = self._options.compression
        self._parts = [_Part(whole.part(index), member.device, compression) for index in range(len(self._servers))]
        self._ahead: tuple[Ticket, Batch] | None = None
        self._begun = False
        self._generation = -1  # in which its samples were last compared

    def _buffers(self) -> list[Tensor]:
        """Return the buffers as they are now: a forward pass may replace them."""
        return list(self._model.buffers())

    def next(self, said: Values) -> Message:
        """Ask server 0 what to do next; `said` is how the last ticket went."""
        values = {**said, "stopping": self._member.stop.is_set()}
        order = self._member.links.ask(self._servers[0], Message("next", values), PATIENCE, until=self._member.stop)
        self._tell(order)
        return order

    def _tell(self, order: Message) -> None:
        values, progress = order.values, self._member.progress
        if order.name == "ticket" and not self._begun:
            is_first = self._member.rank == min(self._member.directory.workers)
            if is_first and self._member.settings.attempt == 1:  # the others may be some steps ahead of it already
                # Before it trains: to open the samples may take longer than a step.
                Evaluator(self._member.settings, self._member.task, self._member.device).check()
            progress.start(values["complete"], values["saved"])
            self._check_servers()
            self._pull(with_buffers=True)
            self._begun = True
        elif order.name == "ticket" and values["complete"] < progress.step:
            progress.start(values["complete"], values["saved"])  # all were set back to a checkpoint
        if order.name == "ticket" and values["generation"] != self._generation:
            self._check_samples(values["complete"])
            self._generation = values["generation"]
        if order.name == "end" and not self._begun:
            progress.start(values["complete"], values["saved"])  # nothing was left to train
        if self._begun:
            self._member.seen(values["complete"])
            progress.measured(values.get("metrics", {}))
            progress.take_over(values["complete"], *(float(values[key]) for key in ("loss", "speed", "seconds")))
        if "last" in values:
            progress.committed(codec.from_plain(CheckpointRecord, values["last"]))
        if order.name == "wait":
            progress.enter("load")  # waiting for others is no hang of ours
        progress.enter(progress.phase if order.name != "ticket" else "train", values["saved"])

    def _check_servers(self) -> None:
        """Compare the servers' models with this one, before anything of theirs is used.

        Raises:
            ConfigurationError: one of them has another model.
        """
        for rank in self._servers:
            with suppress(PeerRefusedError):  # an older version of the trainer does not know the question: no harm
                answer = self._ask({rank: Question(Message(same_models.QUESTION))})[rank]
                same_models.check_alike(same_models.shapes_told(answer), self._shapes, rank, self._member.rank)

    def _check_samples(self, step: int) -> None:
        """Compare the number of samples, before one is used, and again when server 0 may be new and know of none.

        Raises:
            ConfigurationError: another worker has more or fewer, or had, when `step` was reached.
        """
        rank, count = self._member.rank, self._batches.count
        with suppress(PeerRefusedError):  # an older version of the trainer, as above
            question = Question(Message("samples", {"count": count}))
            told = self._ask({self._servers[0]: question})[self._servers[0]].values
            if told["rank"] in (None, rank):
                check_same_dataset(step, told["count"], count)
            else:
                check_same_everywhere({told["rank"]: told["count"], rank: count})

    def obey(self, order: Message) -> Message:
        """Do what server 0 has answered. Return what to do next."""
        if order.name == "ticket":
            return self.work(order)
        if order.name == "evaluate":
            # Nobody changes the model meanwhile.
            step = int(order.values["step"])
            self._member.progress.enter("evaluate")
            inside = ForwardState(self._model)  # its own, where the update is asynchronous
            values = {"step": step, "figures": self._figures(step)}
            inside.put_back()
            self._ask({self._servers[0]: Question(Message("evaluated", values))})
            self._member.progress.enter("train")
        return self.next({})

    def _figures(self, step: int) -> dict[str, float]:
        """Return the task's figures of the servers' model, which is pulled for that."""
        self._pull(with_buffers=True)
        randomness.seed_rank(self._member.settings.plan.seed, 0, step + 1)
        member = self._member
        trial = Evaluator(member.settings, member.task, member.device, member.progress.trying)
        return trial.together(trial.sums(self._model, WHOLE), trial.own(self._model))

    def work(self, order: Message) -> Message:
        """Compute a ticket and bring its gradient to the servers. Return what to do next."""
        ticket = Ticket(*order.values["ticket"])
        generation = {"generation": order.values["generation"], "ticket": ticket}
        if order.tensors:
            self._take_over([order.tensors])
        else:
            self._pull(with_buffers=self._options.sync, step=ticket.step)
        ahead, self._ahead = self._ahead, None
        batch = ahead[1] if ahead and ahead[0] == ticket else self._take(ticket)
        del ahead
        loss = float(self._gradient(batch))
        metrics = {name: float(value) for name, value in self._member.numerics.take_measured().items()}
        if self._options.spare and not self._may_push(generation):
            self._clear()
            return self.next(generation)
        result = {**generation, "done": [loss, batch.size, metrics]}
        values = {**result, "fraction": batch.fraction_done, "complete": self._member.progress.step}
        del batch  # the next one may be there before the answer is
        if len(self._servers) == 1:
            return self._step(values)
        messages = [self._gradient_message("push", index, values) for index in range(len(self._servers))]
        questions = {rank: Question(message) for rank, message in zip(self._servers, messages, strict=True)}
        questions[self._servers[0]].meanwhile = partial(self._prepare, Ticket(*values["ticket"]))
        all_have_it = "stale" not in {answer.name for answer in self._ask(questions).values()}
        return self.next(result if all_have_it else generation)

    def _take(self, ticket: Ticket) -> Batch:
        """Return the samples of a ticket, and seed the random numbers of its forward pass."""
        batch = self._batches.take(ticket.step, Share(ticket.index, ticket.of))
        self._member.progress.read(self._batches.waited)
        # Every worker that computes this share, however often, draws the same numbers.
        randomness.seed_rank(self._member.settings.plan.seed, ticket.index, ticket.step)
        return batch

    def _prepare(self, ticket: Ticket) -> None:
        """Prepare the next ticket while the servers take this ticket's step. In lock step it can be guessed."""
        self._clear()
        following = ticket._replace(step=ticket.step + 1)
        if self._options.sync and self._ahead is None and following.step <= self._member.settings.plan.steps:
            with suppress(Exception):  # a task's own, which comes again where it can be told from a server that is away
                self._ahead = (following, self._take(following))

    def _clear(self) -> None:
        for part in self._parts:
            part.clear()

    def _gradient(self, batch: Batch) -> Tensor:
        numerics = self._member.numerics
        with arrays_told(batch):
            loss = numerics.backward(batch, self._loss)
        if not self._options.sync:  # else the server does, with the whole batch's
            numerics.settle(self._model.parameters())
        return loss

    def _loss(self, batch: Batch) -> Loss:
        loss = loss_of(self._member.task, self._model(batch.inputs), batch.targets)
        return loss.as_mean_for("ParameterServer")

    def _may_push(self, generation: Values) -> bool:
        answer = self._member.links.ask(
            self._servers[0], Message("claim", generation), PATIENCE, until=self._member.stop
        )
        return bool(answer.values["accepted"])

    def _step(self, values: Values) -> Message:
        """Send the gradient to the only server, and receive the next ticket with its model."""
        rank = self._servers[0]
        stopping = {"stopping": self._member.stop.is_set()}
        message = self._gradient_message("step", 0, {**values, **stopping})
        places = self._places(0, with_buffers=self._options.sync)
        question = Question(message, places, partial(self._prepare, Ticket(*values["ticket"])))
        order = self._ask({rank: question})[rank]
        self._tell(order)
        return order

    def _gradient_message(self, name: str, index: int, values: Values) -> Message:
        part = self._parts[index]
        gradient = part.gradient()
        buffers = [] if index else [buffer.cpu().contiguous() for buffer in self._buffers()]
        return Message(name, {**values, "absent": part.absent}, [*gradient, *buffers])

    def _pull(self, *, with_buffers: bool, step: int | None = None) -> None:
        """Pull the model as it is now; with `step`, as it was for this step's gradients."""
        questions = {}
        for index, rank in enumerate(self._servers):
            wanted = with_buffers and not index  # the first server has all of them
            message = Message("pull", {"buffers": wanted, "step": step})
            questions[rank] = Question(message, self._places(index, with_buffers=wanted))
        answers = self._ask(questions)
        self._take_over([answers[rank].tensors for rank in self._servers])

    def _places(self, index: int, *, with_buffers: bool) -> list[Tensor]:
        """Return the tensors into which a server's answer is received."""
        return [*self._parts[index].received, *(self._landing if with_buffers else ())]

    def _take_over(self, pulled: Sequence[Sequence[Tensor]]) -> None:
        """Put what came from each server into the model."""
        for part, tensors in zip(self._parts, pulled, strict=True):
            part.take_over(tensors)
        for buffer, tensor in zip(self._buffers(), pulled[0][len(self._parts[0].received) :], strict=False):
            buffer.copy_(tensor)

    def _ask(self, questions: dict[int, Question]) -> dict[int, Message]:
        """Return all answers. A server that says "later" is asked again."""
        answers: dict[int, Message] = {}
        while questions:
            answers |= self._member.links.ask_all(questions, PATIENCE, self._member.stop)
            questions = {rank: question for rank, question in questions.items() if answers[rank].name == "later"}
            if questions:
                self._member.progress.enter("load")
                time.sleep(LATER_SECONDS)  # the servers hold the question for seconds before they say so
        return answers

    def finish(self, evaluates: bool) -> None:
        """End, as the last checkpoint stands. If `evaluates`, first report the task's figures of the model."""
        progress = self._member.progress
        progress.enter("evaluate")
        self._batches.close()
        if evaluates:
            figures = self._figures(self._member.settings.plan.steps)
            self._ask({self._servers[0]: Question(Message("result", {"figures": figures}))})
        progress.enter("done")


class _Part:
    """Hold the parameters of one server: received in `received`, which on the CPU is where the model has them."""

    def __init__(self, parameters: dict[str, Any], device: torch.device, compression: str) -> None:
        self.absent: list[str] = []
        layout = FlatLayout.for_tensors(parameters)
        self._live = adopt(parameters, layout, device)
        self._gradient = layout.empty(device)
        self._packer = Packer(compression, layout)
        self._parameters = parameters
        self._views = layout.views(self._gradient)
        self.received = self._live if device.type == "cpu" else layout.empty()

    def clear(self) -> None:
        """Drop the gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def gradient(self) -> list[Tensor]:
        """Return the gradient on the CPU, as it is sent: zero for a parameter without, which is named in `absent`."""
        self.absent = []
        views: list[Tensor] = []
        gradients: list[Tensor] = []
        for name, parameter in self._parameters.items():
            gradient = parameter.grad
            if gradient is None:
                self.absent.append(name)
                self._views[name].zero_()
            else:
                views.append(self._views[name])
                gradients.append(gradient.to_dense() if gradient.is_sparse else gradient)
        if views:  # one call for all, as torch's optimizers make it
            torch._foreach_copy_(views, gradients)
        return self._packer.pack([buffer.cpu() for buffer in self._gradient])

    def take_over(self, tensors: Sequence[Tensor]) -> None:
        """Copy what was received into the model, where it lies elsewhere."""
        for live, tensor in zip(self._live, tensors, strict=False):
            if live is not tensor:
                live.copy_(tensor)
