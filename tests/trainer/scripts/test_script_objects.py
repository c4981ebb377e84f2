"""What a snapshot has of a script's objects: what they have at that moment, made anew only where that is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.group import Group
from trainmaster_trainer.scripts.script_objects import ScriptObjects


class Model(nn.Module):
    """Model has a buffer, and a word of its own in its state."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.word: Any = "begun"

    def get_extra_state(self) -> Any:
        """Return the word."""
        return self.word

    def set_extra_state(self, state: Any) -> None:
        """Take the word back."""
        self.word = state


class Counter:
    """Counter gives its own dict as its state, which changes in place."""

    def __init__(self) -> None:
        self.counts: dict[str, Any] = {"steps": 0, "list": [1, 2]}

    def state_dict(self) -> dict[str, Any]:
        """Return the dict itself."""
        return self.counts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state."""
        self.counts = state


def kept(**things: Any) -> ScriptObjects:
    """Return them as a script's only rank keeps them."""
    alone = Group(0, 1, 0, 1, torch.device("cpu"), dist.HashStore())  # type: ignore[attr-defined]
    return ScriptObjects(things, alone)


class Script:
    """Script is what a training has, and what a training step and a script's whims do to it."""

    def __init__(self) -> None:
        self.model = Model()
        self.plain: Any = nn.Linear(2, 2)
        self.optimizer = torch.optim.AdamW([*self.model.parameters(), *self.plain.parameters()], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.counter = Counter()

    def objects(self) -> ScriptObjects:
        """Return them as they are kept."""
        given = {"model": self.model, "plain": self.plain, "optimizer": self.optimizer, "schedule": self.schedule}
        return kept(**given, counter=self.counter)

    def step(self) -> None:
        """Take a step, and draw."""
        self.optimizer.zero_grad()
        self.plain(self.model.second(self.model.first(torch.rand(5, 3)))).sum().backward()
        self.optimizer.step()

    def more_groups(self) -> None:
        """Add parameters to the optimizer."""
        self.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "lr": 1})


def _moved(script: Script) -> None:
    script.model.first.weight.data = script.model.first.weight.data.clone() + 1


def _state_of_another_optimizer(script: Script) -> None:
    other = Script()
    other.step()
    script.optimizer.load_state_dict(other.optimizer.state_dict())


def _set(thing: Any, name: str, value: Any) -> None:
    setattr(thing, name, value)


CHANGES: dict[str, Callable[[Script], object]] = {
    "nothing": lambda script: None,  # noqa: ARG005
    "a step": Script.step,
    "another step": Script.step,
    "a restored optimizer": _state_of_another_optimizer,
    "a learning rate": Script.more_groups,
    "the schedule": lambda script: script.schedule.step(),
    "whole and not": lambda script: _set(script.counter, "counts", {"steps": 0.0, "list": [1, True]}),
    "in place": lambda script: script.counter.counts["list"].append(3),
    "other memory": _moved,
    "a new parameter": lambda script: _set(script.model, "second", nn.Linear(4, 2)),
    "a narrower one": lambda script: _set(script.plain.bias, "data", script.plain.bias.data[:1]),
    "a new buffer": lambda script: script.model.register_buffer("late", torch.ones(1)),
    "a word": lambda script: _set(script.model, "word", ["a", 1]),
    "in the word": lambda script: script.model.word.append(1.0),
    "a step number": lambda script: script.optimizer.state[script.model.first.weight].update(step=7),
    "zeros": lambda script: script.optimizer.param_groups[0].update(lr=0.0),
    "less than zero": lambda script: script.optimizer.param_groups[0].update(lr=-0.0),
}


def told(state: State) -> Any:
    """Return all that a state says."""
    return json.dumps(state.scalars), {name: one.clone() for name, one in state.tensors.items()}


@pytest.fixture
def script() -> Script:
    torch.manual_seed(1)
    return Script()


def test_a_snapshot_has_what_there_is_whatever_has_changed(script: Script) -> None:
    objects = script.objects()
    script.step()
    for name, change in CHANGES.items():
        objects.local_state()
        change(script)
        scalars, tensors = told(objects.local_state())
        expected, all_tensors = told(script.objects().local_state())
        assert scalars == expected, name
        assert tensors.keys() == all_tensors.keys(), name
        assert all(torch.equal(one, all_tensors[each]) for each, one in tensors.items()), name


def test_what_has_only_other_numbers_is_not_written_anew() -> None:
    """Its names and its layout take longer than its tensors, in each step."""
    model = nn.Sequential(nn.Linear(3, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    objects = kept(model=model, optimizer=optimizer)

    def step() -> Any:
        optimizer.zero_grad()
        model(torch.ones(5, 3)).sum().backward()
        optimizer.step()
        return objects.local_state().scalars

    step()
    assert step() is step()
    optimizer.param_groups[0]["lr"] = 1
    one = step()
    optimizer.param_groups[0]["lr"] = 1.0
    assert step() is not one
