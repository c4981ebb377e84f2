"""What scripts keep by `session.state`, as functions for ranks that were started: `Job.call` gives them the group."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, lr_scheduler
from trainmaster.wire import names
from trainmaster_trainer import script_progress, session
from trainmaster_trainer.agent import optimizer_steps
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group

Answer = dict[Any, Any]


class Loader:
    """Loader has a state of its own on each rank, as torchdata's has, with arrays and texts in it."""

    def __init__(self, rank: int) -> None:
        self.generator = np.random.default_rng(rank)
        self.taken: list[float] = []
        self.has_begun = False

    def take(self) -> float:
        """Return a number that follows from all that were taken before."""
        self.has_begun = True
        self.taken.append(float(self.generator.random()))
        return sum(self.taken[-3:])

    def state_dict(self) -> Answer:
        """Return where it is. torchdata's begins when it is asked, before the script has set its epoch."""
        assert self.has_begun
        bits: dict[str, Any] = dict(self.generator.bit_generator.state)
        return {"bits": bits, "taken": np.array(self.taken), ("a", 1): {"text": b"bytes", "nothing": float("nan")}}

    def load_state_dict(self, state: Answer) -> None:
        """Go there."""
        assert state[("a", 1)]["text"] == b"bytes"
        self.generator.bit_generator.state = state["bits"]
        self.taken = state["taken"].tolist()


class Zoo(nn.Module):
    """Zoo has what strangers' models have: tied weights, buffers, BF16, memory that is not contiguous, extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8, bias=False)
        self.outer.weight = self.inner.weight
        self.norm = nn.BatchNorm1d(8)
        self.low = nn.Linear(8, 8).to(torch.bfloat16)
        self.picture = nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)
        self.scale = nn.Parameter(torch.ones(8, 4).t())
        self.mask: Tensor
        self.register_buffer("mask", torch.full((8,), -float("inf")))
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Use all of it."""
        self.calls += 1
        hidden: Tensor = self.norm(self.outer(nn.functional.dropout(self.inner(inputs), 0.2)))
        hidden = hidden + self.low(hidden.to(torch.bfloat16)).float() + self.mask.exp()
        pictures: Tensor = self.picture(hidden.view(-1, 2, 2, 2))
        return (hidden @ self.scale.t()).sum() + pictures.sum()

    def get_extra_state(self) -> Answer:
        """Return a number and a tensor."""
        return {"calls": self.calls, "as": torch.tensor([self.calls])}

    def set_extra_state(self, state: Any) -> None:
        """Take them back."""
        assert int(state["as"]) == state["calls"]
        self.calls = state["calls"]


def zoo(group: Group, until: int, total: int, loader: bool = True) -> Answer:
    """Train a zoo with everything that has a state, from where it stood until step `until`."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Zoo())
    parts: list[list[Any]] = [[model.module.scale, *model.module.low.parameters()], [*model.module.inner.parameters()]]
    rest = [one for one in model.parameters() if all(one is not part for part in [*parts[0], *parts[1]])]
    groups: list[Answer] = [{"params": parts[0]}, {"params": rest, "lr": 0.01}]
    one = AdamW(groups, amsgrad=True, foreach=True)
    other = SGD(parts[1], lr=torch.tensor(0.001), momentum=0.9, nesterov=True)
    mine, noise = Loader(group.rank), torch.Generator().manual_seed(group.rank)
    kept: Answer = {
        "model": torch.compile(model, backend="eager"),
        "adam": one,
        "sgd": other,
        "average": torch.optim.swa_utils.AveragedModel(model.module),
        "cycle": lr_scheduler.OneCycleLR(one, 0.02, total_steps=total + 1),
        "plateau": lr_scheduler.ReduceLROnPlateau(one, patience=1),
        "scaler": torch.amp.GradScaler("cpu"),
        "noise": noise,
        "python": random.Random(group.rank),  # noqa: S311 scripts do
        **({"loader": mine} if loader else {}),
    }
    state = session.state(**kept)
    done = state.restore()
    for step in range(done + 1, until + 1):
        inputs = torch.randn(4, 8) + torch.randn(4, 8, generator=noise) + kept["python"].random()
        loss = model(inputs) * (1 + 0.01 * (mine.take() if loader else 0.5))
        kept["scaler"].scale(loss).backward()
        kept["scaler"].step(one)
        kept["scaler"].step(other)
        kept["scaler"].update()
        kept["cycle"].step()
        kept["plateau"].step(1.0)
        kept["average"].update_parameters(model.module)
        for optimizer in (one, other):
            optimizer.zero_grad()
        session.report(step=step, total=until)
        state.step(step)
    numbers = [*model.state_dict().values(), *kept["average"].state_dict().values()]
    return {
        "done": done,
        "numbers": [number.double().sum().item() for number in numbers if isinstance(number, Tensor)],
        "rates": [group["lr"] for group in one.param_groups],
        "next": [mine.take() if loader else 0, torch.rand(()).item(), torch.rand((), generator=noise).item()],
        "calls": model.module.calls,
    }


def sharded(group: Group, until: int) -> Answer:
    """Train a model that FSDP2 has divided, each rank on the whole batch."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (group.world_size,))
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = AdamW(model.parameters(), lr=0.05)
    state = session.state(model=model, optimizer=optimizer)
    done = state.restore()
    for step in range(done + 1, until + 1):
        optimizer.zero_grad()
        inputs = torch.randn(6, 5, generator=torch.Generator().manual_seed(step))
        model(inputs).square().mean().backward()
        optimizer.step()
        session.report(step=step, total=until)
        state.step(step)
    whole = [one.full_tensor() for one in model.parameters() if isinstance(one, DTensor)]
    return {"done": done, "numbers": torch.cat([one.detach().reshape(-1) for one in whole]).tolist()}


def replicated(group: Group, until: int, seconds: float = 0.0, dies: Sequence[int] = (), grows: int = 0) -> Answer:
    """Train in steps of so many seconds; rank 1 takes half of them when rank 0 waits for it already.

    `dies`: which rank kills itself, in which step, and at which line of those that keep its state. `grows`: in which
    step there is more to keep, and no memory for it on rank 1.
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)))
    optimizer = AdamW(model.parameters(), lr=0.05)
    noise, chance = torch.Generator().manual_seed(group.rank), random.Random(group.rank)  # noqa: S311 scripts do
    loader = Loader(group.rank)
    loader.take()
    state = session.state(model=model, optimizer=optimizer, noise=noise, chance=chance, loader=loader)
    done = state.restore()
    for step in range(done + 1, until + 1):
        optimizer.zero_grad()
        inputs = torch.randn(6, 5, generator=noise) * chance.random()
        (model(inputs) + torch.randn(())).square().mean().backward()
        optimizer.step()
        time.sleep(seconds * (group.rank + 1) / group.world_size)
        if step == grows:
            loader.taken += [0.0] * 1000
            if group.rank:
                shutil.rmtree(os.environ[names.ENV_MEMORY])
        if [*dies[:2]] == [group.rank, step]:
            _die_at_line(dies[2])
        state.step(step)
    numbers = [one.double().sum().item() for one in model.state_dict().values()]
    return {
        "done": done,
        "numbers": numbers,
        "next": [chance.random(), torch.rand(()).item(), torch.rand((), generator=noise).item()],
    }


def _die_at_line(number: int) -> None:
    """Be killed before this line of what takes snapshots and exchanges them is run, from now on."""
    left = number

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in ("memory.py", "neighbours.py", "passing.py", "slot.py"):
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return look

    sys.settrace(look)


def line(group: Group, until: int, adam: bool = False) -> Answer:
    """Train the model of the task `small_tasks:Line`, by its own optimizer or by another one."""
    model = importlib.import_module("small_tasks").Line().model()  # lies beside, and not in a package, here
    weights = list(model.parameters())
    optimizer = AdamW(weights) if adam else SGD(weights, lr=0.01, momentum=0.9)
    state = session.state(model=model, optimizer=optimizer)
    done = state.restore()
    numbers = torch.cat([one.detach().reshape(-1) for one in weights]).tolist()
    for step in range(done + 1, until + 1):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()
        session.report(step=step, total=until)
        state.step(step)
    return {"done": done, "numbers": numbers, "moments": len(optimizer.state)}


def quick(group: Group, until: int, stride: int = 1) -> None:
    """Take steps that take no time, and tell of each, or of some."""
    state = session.state(model=_model())
    for step in range(state.restore() + stride, until + 1, stride):
        state.step(step)


def forgetful(group: Group) -> None:
    """Train, and never call step()."""
    optimizer_steps.count()
    model = _model()
    optimizer = SGD(model.parameters(), lr=0.01)
    state = session.state(model=model, optimizer=optimizer)
    state.restore()
    for _ in range(3):
        model(torch.ones(3)).sum().backward()
        optimizer.step()
    getattr(state, "_keeper")._finish(os.getpid())  # noqa: B009 as at the end of a process, which these do not reach


def uneven(group: Group, end: int = 1000) -> None:
    """Have fewer batches on rank 1. It never says how many steps there are."""
    state = session.state(model=_model())
    for step in range(state.restore() + 1, 2 if group.rank else end):
        state.step(step)
    getattr(state, "_keeper")._finish(os.getpid())  # noqa: B009 as at the end of a process


def scored(group: Group, scores: dict[str, float], until: int) -> Any:
    """Report a score after every second step, and keep the state. Return with which code it is ended before the end."""
    model = importlib.import_module("small_tasks").Line().model()
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    state = session.state(model=model, optimizer=optimizer)
    try:
        for step in range(state.restore() + 1, until + 1):
            time.sleep(0.03)
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
            if step % 2 == 0 and group.rank == 0:
                session.report(step=step, total=until, score=scores.get(str(step), 0.0))
            state.step(step)
    except SystemExit as end:
        return end.code
    return None


def missing(group: Group) -> str:
    """Call step() on rank 0 alone; return what is said there."""
    state = session.state(model=_model())
    state.restore()
    keeper = getattr(state, "_keeper")  # noqa: B009
    if group.rank:
        keeper._finish(os.getpid())
        return ""
    try:
        state.step(1)
    except ConfigurationError as error:
        return str(error)
    return "nothing"


def unmet(group: Group) -> str:
    """Keep a state on rank 0 alone; return what is said there."""
    if group.rank:
        session._leave()
        return ""
    try:
        session.state(model=_model()).restore()
    except ConfigurationError as error:
        return str(error)
    return "nothing"


# --- mistakes: each gives the text of the error ---------------------------------------------------------------------


def _model(width: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, width)


def _nested() -> Any:
    class Odd:
        def state_dict(self) -> Answer:
            return {"inside": [{"thing": object()}]}

        def load_state_dict(self, state: Answer) -> None: ...

    return Odd()


def _go(*steps: int, **objects: Any) -> None:
    state = session.state(**(objects or {"model": _model()}))
    state.restore()
    for step in steps:
        state.step(step)


def _twice() -> None:
    session.state(model=_model())
    session.state(optimizer=SGD(_model().parameters()))


def _restored_twice() -> None:
    state = session.state(model=_model())
    state.restore()
    state.restore()


def _late() -> None:
    session.report(step=3)
    session.state(model=_model()).restore()


def _go_on_with(mistake: str, then: dict[str, Any], **first: Any) -> None:
    _go(2, **first)  # saved, as each second step is
    getattr(session._states[0], "_keeper")._saver.wait()  # noqa: B009
    _afresh(mistake)
    _go(**then)


def _changed_weight(rank: int) -> nn.Module:
    model = _model()
    with torch.no_grad():
        next(model.parameters()).add_(rank)
    return model


MISTAKES: dict[str, Callable[[int], None]] = {
    "twice": lambda _: _twice(),
    "restored twice": lambda _: _restored_twice(),
    "late": lambda _: _late(),
    "no restore": lambda _: session.state(model=_model()).step(1),
    "from 0 on": lambda _: _go(0),
    "backwards": lambda _: _go(1, 2, 2),
    "no number": lambda _: _go("3"),  # type: ignore[arg-type]
    "a class": lambda _: _go(1, model=_model(), odd=_nested()),
    "a lazy module": lambda _: _go(1, model=nn.LazyLinear(3)),
    "other steps": lambda rank: _go(1 + rank),
    "other models": lambda rank: _go(1, model=_model(3 + rank)),
    "other names": lambda rank: _go(1, **{f"model{rank}": _model()}),
    "other weights": lambda rank: _go(2, model=_changed_weight(rank)),
    "other objects": lambda _: _go_on_with("other objects", {"model": _model(), "more": _model()}, model=_model()),
    "other kind": lambda _: _go_on_with(
        "other kind", {"more": SGD(_model().parameters())}, more=AdamW(_model().parameters())
    ),
}


def _afresh(name: str) -> None:
    """Be as a process that has just begun, with a folder of its own for each mistake."""
    session._states.clear()
    script_progress._opened_by = 0
    here = Path(os.environ.setdefault("BASE", os.environ[names.ENV_CHECKPOINTS]))
    os.environ[names.ENV_CHECKPOINTS] = str(here / name.replace(" ", "-"))


def mistakes(group: Group) -> dict[str, str]:
    """Make all of them, on all ranks; return what is said of each."""
    said = {}
    for name, make in MISTAKES.items():
        _afresh(name)
        try:
            make(group.rank)
        except ConfigurationError as error:
            said[name] = str(error)
    return said
