"""A peer is one worker: it takes steps, averages with random others beside them, and answers those who ask it.

The average after a step travels while the next gradient is computed, as in AD-PSGD; the next average waits for it. So a
gradient may be of the model before the latest average, as `train` says.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainmaster_trainer import randomness
from trainmaster_trainer.answers import loss_of, make_model, make_optimizer
from trainmaster_trainer.checkpoint.model_state import ModelState
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.collating import arrays_told
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import WHOLE, Batch, Share, check_batch_size
from trainmaster_trainer.flat_buffers import FlatLayout, adopt
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.rates import Rates
from trainmaster_trainer.strategies import same_models
from trainmaster_trainer.strategies.gossip.mixing import Mixer
from trainmaster_trainer.strategies.gossip.sample_counters import SampleCounters
from trainmaster_trainer.strategies.outside_changes import trained
from trainmaster_trainer.strategies.strategy import check_options
from trainmaster_trainer.transport.directory import RankAddress
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError, Question, seconds_for
from trainmaster_trainer.transport.service import RequestRefusedError, Service
from trainmaster_trainer.validation import Evaluator

log = logging.getLogger(__name__)
SAMPLE_COUNTERS = "sample_counters"  # among the scalars of a state
PARTNER_SECONDS = 0.0  # a partner that does not answer is left alone for a while, and another one met
SILENCE_SECONDS = 2.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
ABSENCE_SECONDS = 0.25  # between two looks for a peer to take over from
START_SECONDS = 2.0  # within which all are there, when all begin together
HELLO_TIMES = 3  # a whole state has the optimizer's tensors too


class Given(NamedTuple):
    """Given keeps an answer to an asker until the asker confirms it; after that only the number of the meeting."""

    life: bytes
    number: int  # of its asker's meetings
    half: list[Tensor] | None


class Peer:
    """Peer is one worker: its parameters, its optimizer, the sample counters it knows, and its answers."""

    def __init__(self, member: IndependentMember) -> None:
        self.member = member
        check_options("Gossip", member.options, {"peers": (), "topKPercent": ()})
        self._partners = int(member.options.get("peers") or 1)
        self._batches = member.batches()
        self.plan = member.settings.plan  # from here on with the steps that epochs take
        self._model = make_model(member.task).to(member.device)  # computes; peers do not touch it
        self._mine = make_model(member.task)  # is averaged, and stepped by the optimizer; on the CPU
        member.numerics.attach(self._model, member.device)
        self._mine.load_state_dict(self._model.state_dict())
        parameters = dict(self._mine.named_parameters())
        self.mixer = Mixer(adopt(parameters, FlatLayout.for_tensors(parameters)), member.options.get("topKPercent"))
        self._optimizer = make_optimizer(member.task, list(self._mine.parameters()))
        self._rates = Rates(member.task, self._optimizer).without_schedule("Gossip")
        self._state = ModelState(self._mine, self._optimizer)
        self._shapes = self._state.capture().model_shapes()
        self._state.of_the_moment = self._rates.settings
        self._silence = SILENCE_SECONDS + seconds_for(sum(parameter.nbytes for parameter in parameters.values()))
        self.sample_counters = SampleCounters(self.plan.global_batch_size)
        self.goal = self.plan.steps * self.plan.global_batch_size
        self.trial = Evaluator(member.settings, member.task, member.device)
        self._turn = 0
        self._meetings = 0
        self._averager = ThreadPoolExecutor(max_workers=1, thread_name_prefix="average")
        self._averaging: Future[None] | None = None
        self._given: dict[int, Given] = {}  # at the newest meeting with each asker
        self._open: dict[int, tuple[RankAddress | None, Message]] = {}
        self._alike: dict[int, RankAddress | None] = {}  # who was found to have the same model
        self.finished: set[int] = set()
        self.closed = False
        self._has_heard = False  # any other worker
        self._settled = False  # has looked whether a peer is further, and may be met
        self._avoided: dict[int, tuple[float, float]] = {}  # who did not answer: until when, and for how long
        self.left: set[int] = set()  # who has said goodbye
        self._random = random.Random(f"{self.plan.seed} {member.rank} {member.identity.life.hex()}")  # noqa: S311
        self._answers = {
            same_models.QUESTION: lambda *_: same_models.answer(self._shapes),
            "meet": self._meet,
            "thanks": self._thanks,
            "whole": self._whole,
            "closing": self._closing,
        }

    @property
    def dataset(self) -> int:
        """Return the number of samples of the data set."""
        return self._batches.count

    @property
    def workers(self) -> list[int]:
        """Return the ranks of all workers of the roster."""
        return self.member.directory.workers

    def open(self) -> None:
        """Answer others from now on."""
        Service(self.member.listener, self.member.identity, self._answer, failed=self.member.failures.append)

    # Answering, in service threads.

    def _answer(self, caller: Caller, request: Message) -> Message:
        if request.name not in self._answers:
            raise RequestRefusedError(f"a peer cannot {request.name}")
        with self.mixer.lock:
            if self._settled:
                self.sample_counters.merge(request.values.get("sample_counters", []))
            return self._answers[request.name](caller, request)

    def _meet(self, caller: Caller, request: Message) -> Message:
        if not self._settled:
            raise RequestRefusedError("not ready yet")
        number, given = request.values["number"], self._given.get(caller.rank)
        if not isinstance(number, int):
            raise RequestRefusedError("its meetings are counted in another way, by another version of the trainer")
        if given is None or given.life != caller.life or given.number < number:
            half = self.mixer.meet(request.tensors)
            self._given[caller.rank] = Given(caller.life, number, half)
        elif given.half is None or given.number > number:
            raise RequestRefusedError("this meeting is over")  # it has asked again meanwhile, and has the answer
        else:
            half = given.half  # the answer was lost on the way: the same again
        return Message("half", {"sample_counters": self.sample_counters.plain()}, half)

    def _thanks(self, caller: Caller, request: Message) -> Message:
        given = self._given.get(caller.rank)
        if given and (given.life, given.number) == (caller.life, request.values["number"]):
            self._given[caller.rank] = given._replace(half=None)
        return Message("ok")

    def _whole(self, _caller: Caller, _request: Message) -> Message:
        state = self.state()
        tensors = [tensor.clone().contiguous() for tensor in state.tensors.values()]
        values = {"names": list(state.tensors), "scalars": json.loads(json.dumps(state.scalars))}
        return Message(
            "whole", {**values, "sample_counters": self.sample_counters.plain(), "closed": self.closed}, tensors
        )

    def _closing(self, caller: Caller, request: Message) -> Message:
        self.finished.add(caller.rank)
        if request.values.get("leaving"):
            self.left.add(caller.rank)
        return Message("closed" if self.closed else "open", {"sample_counters": self.sample_counters.plain()})

    # The worker's own.

    def state(self) -> State:
        """Return everything that must outlive the process, as live tensors."""
        buffers = dict(self._model.named_buffers())
        for name, buffer in self._mine.named_buffers():
            buffer.copy_(buffers[name])
        state = self._state.capture()
        return dataclasses.replace(state, scalars={**state.scalars, SAMPLE_COUNTERS: self.sample_counters.state()})

    def trained(self) -> list[nn.Parameter]:
        """Return the parameters that are averaged and stepped."""
        return trained(self._mine)

    def restore(self, state: State) -> None:
        """Go on from a checkpoint or from a peer's model, and count the samples that are in it."""
        with self.mixer.lock:
            self._state.restore(state)
            self.compute_with_own()
            if SAMPLE_COUNTERS in state.scalars:
                self.sample_counters.restore(state.scalars[SAMPLE_COUNTERS])

    def compute_with_own(self) -> None:
        """Copy the averaged model, with its buffers, into the model that computes. The caller holds the lock."""
        self._model.load_state_dict(self._mine.state_dict())

    def take_over(self, is_over: Callable[[], bool]) -> bool:
        """Wait for a worker that is further than the newest checkpoint, and go on from its model and its counters.

        Initial weights are for the beginning: averaged into models that have trained, they undo much of it. So a worker
        that finds no checkpoint waits for an answer of any other, as it may have joined others that train. If it came
        later than they began, or cannot see what they begin with, it waits for one that is further. It waits until no
        worker of the roster is silent, or until `is_over` says that the last checkpoint stands, as the others may have
        left. Return False if it was asked to stop meanwhile.
        """
        begun, has_told = time.monotonic(), False
        while self._ask_around() and self._may_be_behind and not self.sample_counters.samples:
            self.member.progress.enter("load")
            if not has_told and time.monotonic() > begun + START_SECONDS:
                log.info("Waiting for a peer: the others may have trained, and not all of them answer yet.")
                has_told = True
            self.member.check()
            if is_over():
                self.closed = True
                break
            if self.member.stop.wait(ABSENCE_SECONDS):
                return False
        self._settled = True
        self._turn = self.sample_counters.step
        return True

    @property
    def _may_be_behind(self) -> bool:
        """Return whether others may have a model that is further, though this worker has found no checkpoint."""
        fetched = (
            self.plan.checkpoint_url or self.plan.resume_from or self.plan.resume_job
        )  # by the checkpoint writer alone
        on_their_own = not self.plan.checkpoint_shared and self.member.settings.attempt > 1
        # Its pod was replaced or it was started again alone, so that the others began without it.
        place = self.member.directory.place(self.member.rank)
        came_later = place is not None and place.life != (0, 0)
        return not self._has_heard or came_later or fetched is not None or on_their_own

    def _ask_around(self) -> bool:
        """Take over the model of the worker that is furthest. Return whether a worker did not answer."""
        heard: list[Any] = []
        silent = False
        for rank in self._others():
            try:
                answer = self.member.links.ask(rank, Message("whole"), 0.0, HELLO_TIMES * self._silence)
            except (PeerLostError, PeerRefusedError):
                silent = True
                continue
            same_models.check_alike(whole_state(answer).model_shapes(), self._shapes, rank, self.member.rank)
            self._has_heard = True
            theirs = SampleCounters(self.plan.global_batch_size)
            theirs.merge(answer.values["sample_counters"])
            heard += answer.values["sample_counters"]
            with self.mixer.lock:
                if theirs.samples > self.sample_counters.samples:
                    self.restore(whole_state(answer))
                    log.info("Took over the model of rank %d at step %d.", rank, theirs.step)
                self.sample_counters.merge(heard)
                self.closed = self.closed or bool(answer.values["closed"])
        return silent

    def _others(self) -> list[int]:
        others = [rank for rank in self.workers if rank != self.member.rank]
        self._random.shuffle(others)
        return others

    def train(self) -> None:
        """Take one step of this worker's own."""
        workers = self.workers
        index = workers.index(self.member.rank) if self.member.rank in workers else 0
        share = Share(index, len(workers) or 1)
        check_batch_size(self.plan.global_batch_size, share.of)
        self._turn += 1
        batch = self._batches.take(self._turn, share)
        self.member.progress.read(self._batches.waited)
        randomness.seed_rank(self.plan.seed, self.member.rank, self._turn)
        with self.mixer.lock, torch.no_grad():
            for live, own in zip(self._model.parameters(), self._mine.parameters(), strict=True):
                live.copy_(own)
        self._model.zero_grad()
        with arrays_told(batch):
            loss = self.member.numerics.backward(batch, self._loss)
        with self.mixer.lock:
            # The gradient is of a copy of the model that others may have changed since, as AD-PSGD allows.
            for live, own in zip(self._model.parameters(), self._mine.parameters(), strict=True):
                own.grad = None if live.grad is None else live.grad.cpu()
            self._rates.set(min(self.sample_counters.samples / self.goal, 1.0))
            self.member.numerics.take_step(self._optimizer)
            measured = {name: float(value) for name, value in self.member.numerics.take_measured().items()}
            self.sample_counters.add(self.member.rank, batch.size, float(loss), measured)

    def _loss(self, batch: Batch) -> Loss:
        return loss_of(self.member.task, self._model(batch.inputs), batch.targets).as_mean_for("Gossip")

    def average_meanwhile(self) -> None:
        """Begin an average in the background, after the one before has ended."""
        self.end_average()
        self._averaging = self._averager.submit(self.average)

    def end_average(self) -> None:
        """Wait for the average that is under way."""
        if self._averaging is not None:
            self._averaging.result()

    def average(self) -> None:
        """Meet as many other workers as the YAML says, chosen at random among those that answer."""
        met = 0
        for rank in self._others():
            until, pause = self._avoided.get(rank, (0.0, FIRST_PAUSE))
            if time.monotonic() < until:
                continue
            if self.meet(rank):
                self._avoided.pop(rank, None)
                met += 1
            else:
                self._avoided[rank] = (time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE))
            if met >= self._partners:
                return

    def meet(self, rank: int) -> bool:
        """Average with one other worker. Return whether it came about.

        A meeting that broke off is taken up again with the same number and the same values the next time: the other
        may have taken its half step.
        """
        place = self.member.directory.place(rank)
        try:
            # A worker that is met at this place for the first time is asked which model it has.
            if place is None or self._alike.get(rank) != place:
                told = self.member.links.ask(rank, Message(same_models.QUESTION), PARTNER_SECONDS, self._silence)
                same_models.check_alike(same_models.shapes_told(told), self._shapes, rank, self.member.rank)
                self._alike[rank] = place
            message = self._meeting(rank, place)
            answer = self.member.links.to(rank).ask(Question(message), PARTNER_SECONDS, self._silence)
        except (PeerLostError, PeerRefusedError) as error:
            log.debug("Not met: %s", error)
            return False
        distance = self.mixer.settle(message.tensors, answer.tensors)
        del self._open[rank]
        with self.mixer.lock:
            self.sample_counters.merge(answer.values["sample_counters"])
            if self.member.rank in self.sample_counters.entries:
                self.sample_counters.entries[self.member.rank].distance = distance
        with suppress(PeerLostError, PeerRefusedError):  # else it keeps the answer until the next meeting
            number = {"number": message.values["number"]}
            self.member.links.ask(rank, Message("thanks", number), 0.0, SILENCE_SECONDS)
        return True

    def _meeting(self, rank: int, place: RankAddress | None) -> Message:
        """Return the message to ask with: the meeting that broke off, or a new one."""
        known = self._open.get(rank)
        if known is None or known[0] != place:  # a successor knows nothing of that meeting
            self._meetings += 1
            known = self._open[rank] = (place, Message("meet", {"number": self._meetings}, self.mixer.offer()))
        with self.mixer.lock:
            known[1].values["sample_counters"] = self.sample_counters.plain()
        return known[1]

    def evaluate(self) -> dict[str, float]:
        """Return what the task's evaluation says of the model."""
        with self.mixer.lock, torch.no_grad():
            for live, own in zip(self._model.parameters(), self._mine.parameters(), strict=True):
                live.copy_(own)
        with self.trial.untouched(self._model):
            return self.trial.together(self.trial.sums(self._model, WHOLE), self.trial.own(self._model))


def whole_state(answer: Message) -> State:
    """Return the state that a peer sent."""
    values: Mapping[str, Any] = answer.values
    return State(dict(zip(values["names"], answer.tensors, strict=True)), values["scalars"])
