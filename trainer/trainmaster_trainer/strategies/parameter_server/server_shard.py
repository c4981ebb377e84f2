"""A shard holds some parameters, their optimizer, and which tickets are in them.

Each server has its own, and keeps a live copy of its neighbour's.

`Async`: every gradient is one step of the optimizer (Dean et al., "Large scale distributed deep networks", NIPS 2012).
`Sync`: the gradients of a step wait until all are there, are added up in the order of shares (so that the sum does not
depend on who came first) and weighed by their samples: one step with the gradient of the whole batch's mean.

A gradient is applied once: its ticket is remembered until a checkpoint makes it history.

A step may be in one shard and not in another when a server dies. Its missing gradients are computed again, at the same
parameters as the first time: so where there are several servers, a synchronous shard keeps those from before its last
step too (`parameters`). Else the new gradients would be taken at a model that is half a step further.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint.model_state import ModelState
from trainmaster_trainer.checkpoint.state import MODEL, OPTIMIZER, State
from trainmaster_trainer.flat_buffers import FlatLayout, adopt
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.rates import Rates
from trainmaster_trainer.strategies.parameter_server.options import ServerOptions
from trainmaster_trainer.strategies.parameter_server.steps import Steps
from trainmaster_trainer.strategies.parameter_server.tickets import DoneTicket, Ticket
from trainmaster_trainer.strategies.parameter_server.whole import UndividedModel
from trainmaster_trainer.transport.frame import Message, Values


class Part(nn.Module):
    """Hold some parameters of a model under their full names, for ModelState."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], buffers: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.parts, self.extras = dict(parameters), dict(buffers)

    @override
    def named_parameters(self, *_: Any, **__: Any) -> Any:
        return iter(self.parts.items())

    @override
    def state_dict(self, *_: Any, **__: Any) -> Any:
        return {**self.parts, **self.extras}

    @override
    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        with torch.no_grad():
            for name, tensor in self.state_dict().items():
                tensor.copy_(state_dict[name])


@dataclass(frozen=True)
class Push:
    """Hold a gradient that came: its ticket, its number of samples, and the moment of the training."""

    ticket: Ticket
    done: DoneTicket
    fraction: float
    absent: tuple[str, ...]  # parameters that this share gave no gradient
    tensors: list[Tensor] = field(compare=False)  # the flat gradient, then the buffers of the model

    @classmethod
    def read(cls, message: Message) -> Push:
        """Return the push that a request holds."""
        values = message.values
        ticket, done = Ticket(*values["ticket"]), DoneTicket(*values["done"])
        return cls(ticket, done, float(values["fraction"]), tuple(values["absent"]), message.tensors)

    def values(self) -> Values:
        """Return the values for a request."""
        return {"ticket": self.ticket, "done": self.done, "fraction": self.fraction, "absent": self.absent}


class Shard:
    """Shard holds parameters, optimizer, and the tickets in them. The caller holds `lock` around everything."""

    def __init__(
        self, whole: UndividedModel, index: int, options: ServerOptions, numerics: Numerics, seed: int
    ) -> None:
        sync = options.sync
        self._index, self._seed = index, seed
        self.lock = threading.RLock()
        self.loaded = False
        self.branch = ""  # all shards get the same one when they are set back: none of another past is among them
        self.version = 0  # gradients applied
        self.floor = 0  # everything up to this step is in
        self.applied: dict[Ticket, DoneTicket] = {}
        self.newest = 0  # the highest step of which something is in
        self.staleness = 0  # the most steps by which a gradient was behind the newest one
        self._sync, self._spare = sync, options.spare
        self._numerics = numerics
        self._alone = len(whole.parts) == 1  # there is no other shard
        self._step = 0  # the last one that is in the parameters (`Sync`)
        self._waiting: dict[int, dict[int, Push]] = {}
        self._parameters = whole.part(index)
        self._buffers = {} if index else whole.buffers  # the first server has all of them
        self.layout = FlatLayout.for_tensors(self._parameters)
        self._flat = adopt(self._parameters, self.layout)
        self._total = self.layout.empty() if sync else []  # the gradients of a step, summed
        # Whole numbers may be parameters, such as a quantized model's, but have no gradients.
        self._trained = [
            index for index, dtype in enumerate(self.layout.dtypes) if dtype.is_floating_point or dtype.is_complex
        ]
        self._optimizer = whole.optimizer(index)
        self._steps = Steps(self._optimizer, self._parameters, self.layout, self._flat)
        self._rates = Rates(whole.task, self._optimizer).without_schedule("ParameterServer")
        self._state = ModelState(Part(self._parameters, self._buffers), self._optimizer)
        self._state.of_the_moment = self._rates.settings
        self._snapshot: tuple[int, list[Tensor]] | None = None
        self._past: list[Tensor] = []  # parameters and buffers before the last step, where another shard may lack it

    @property
    def size(self) -> int:
        """Return its bytes, counted with an optimizer of two moments."""
        return 3 * sum(tensor.nbytes for tensor in self._flat)

    def push(self, push: Push) -> bool:
        """Take a gradient in. Return whether it was new."""
        if push.ticket.step <= self.floor or push.ticket in self.applied:
            return False
        self.applied[push.ticket] = push.done
        self.staleness = max(self.staleness, self.newest - push.ticket.step)
        self.newest = max(self.newest, push.ticket.step)
        if not self._sync:
            count = len(self._flat)
            self._apply(push.tensors[:count], push.tensors[count:], push.absent, push.fraction)
        else:
            waiting = self._waiting.setdefault(push.ticket.step, {})
            waiting[push.ticket.index] = push
            if len(waiting) >= push.ticket.of - min(self._spare, push.ticket.of - 1):
                self._apply_step(push.ticket.step, self._waiting.pop(push.ticket.step))
        return True

    def _apply_step(self, step: int, waiting: Mapping[int, Push]) -> None:
        if not self._alone:
            self._past = self._copies()
        self._step = step
        pushes = [waiting[index] for index in sorted(waiting)]
        samples = sum(push.done.size for push in pushes)
        for index in self._trained:
            torch.mul(pushes[0].tensors[index], pushes[0].done.size / samples, out=self._total[index])
        for push in pushes[1:]:
            for index in self._trained:
                self._total[index].add_(push.tensors[index], alpha=push.done.size / samples)
        absent = set.intersection(*(set(push.absent) for push in pushes))
        with randomness.ONE_AT_A_TIME:  # the copy's step draws the same numbers, in another process
            randomness.seed_rank(self._seed, -1 - self._index, step)  # no share's numbers
            self._apply(self._total, pushes[0].tensors[len(self._total) :], absent, pushes[0].fraction)

    def _apply(self, gradients: list[Tensor], buffers: list[Tensor], absent: Collection[str], fraction: float) -> None:
        for buffer, tensor in zip(self._buffers.values(), buffers, strict=False):
            buffer.copy_(tensor)
        self._rates.set(fraction)
        self._steps.take(gradients, absent, self._numerics.take_step)
        self.version += 1

    def parameters(self, with_buffers: bool, step: int | None = None) -> list[Tensor]:
        """Return copies of the parameters: those before the last step, if they are wanted for that `step`."""
        copies = self._past if step == self._step and self._past else self._copies()
        return copies if with_buffers else copies[: len(self._flat)]

    def _copies(self) -> list[Tensor]:
        """Return copies made once per version: they are sent while the next gradient is applied."""
        if self._snapshot is None or self._snapshot[0] != self.version:
            live = (*self._flat, *self._buffers.values())
            self._snapshot = (self.version, [tensor.clone().contiguous() for tensor in live])
        return self._snapshot[1]

    def settle(self, floor: int) -> None:
        """Note that steps up to `floor` are complete and saved, and forget their tickets."""
        self.floor = max(self.floor, floor)
        self.applied = {ticket: done for ticket, done in self.applied.items() if ticket.step > self.floor}

    def state(self) -> State:
        """Return the live tensors, under the names of a checkpoint."""
        return self._state.capture()

    def restore(self, state: State, floor: int) -> None:
        """Go on from a checkpoint of step `floor`, taking its own part of a whole model's state."""
        self._state.restore(self._own(state))
        self._steps.forget()
        self.loaded, self.floor, self.newest = True, floor, floor
        self.applied, self._waiting, self._snapshot, self._past = {}, {}, None, []
        self._step = floor
        self.version += 1

    def begin(self, branch: str) -> None:
        """Go on from the weights that the task gave."""
        self.loaded, self.branch = True, branch

    def _own(self, state: State) -> State:
        names = set(self._parameters)
        buffers = {MODEL + name: buffer for name, buffer in self._buffers.items()}
        kept = {MODEL + name for name in names} | buffers.keys()
        own = {
            name: tensor
            for name, tensor in state.tensors.items()
            if name in kept or (name.startswith(OPTIMIZER) and name.removeprefix(OPTIMIZER).rpartition("/")[0] in names)
        }
        optimizer = dict(state.scalars["optimizer"])
        optimizer["groups"] = [
            {**group, "names": [name for name in group["names"] if name in names]} for group in optimizer["groups"]
        ]
        optimizer["others"] = {name: values for name, values in optimizer["others"].items() if name in names}
        # Buffers that no checkpoint has (persistent=False) stay what they are; a copy has them.
        return State({**buffers, **own}, {**state.scalars, "optimizer": optimizer})

    def export(self, *, with_past: bool = True) -> Message:
        """Return the whole shard as a message for a neighbour's copy or a successor. A checkpoint needs no past."""
        state = self.state()
        past = self._past if with_past else []
        waiting = [push for step in self._waiting.values() for push in step.values()]
        values = {
            "names": list(state.tensors),
            "scalars": json.loads(json.dumps(state.scalars)),
            "floor": self.floor,
            "newest": self.newest,
            "applied": [[list(ticket), list(done)] for ticket, done in self.applied.items()],
            "waiting": [{**push.values(), "count": len(push.tensors)} for push in waiting],
            "step": self._step,
            "past": len(past),
            "branch": self.branch,
        }
        tensors = [tensor.detach().clone() for tensor in state.tensors.values()]
        waiting_tensors = (tensor for push in waiting for tensor in push.tensors)
        return Message("shard", values, [*tensors, *past, *waiting_tensors])

    def install(self, message: Message) -> None:
        """Take over what `export` gave."""
        values, tensors = message.values, list(message.tensors)
        names = values["names"]
        self.restore(State(dict(zip(names, tensors, strict=False)), values["scalars"]), values["floor"])
        self.newest, self.branch = values["newest"], str(values["branch"])
        self.applied = {Ticket(*ticket): DoneTicket(*done) for ticket, done in values["applied"]}
        self._step = values["step"]
        rest = tensors[len(names) :]
        self._past, rest = rest[: values["past"]], rest[values["past"] :]
        for plain in values["waiting"]:
            push = Push.read(Message("push", plain, rest[: plain["count"]]))
            rest = rest[plain["count"] :]
            self._waiting.setdefault(push.ticket.step, {})[push.ticket.index] = push
