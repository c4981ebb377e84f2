"""A model and its optimizer as plain data, and back."""

import json
from typing import Any

import pytest
import torch
from torch import nn
from trainmaster_trainer.checkpoint.manifest_check import Cursor, Manifest, model_sha256
from trainmaster_trainer.checkpoint.model_state import ModelState
from trainmaster_trainer.checkpoint.shard import ShardRecord, TensorRecord
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.errors import ConfigurationError

from tests.trainer.ranks import Options


def make(optimizer: Any = torch.optim.AdamW, **settings: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return model, optimizer(model.parameters(), lr=0.1, **settings)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        points = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(points).square().mean().backward()
        optimizer.step()


def through_json(state: State) -> State:
    return State(
        {name: tensor.clone() for name, tensor in state.tensors.items()}, json.loads(json.dumps(state.scalars))
    )


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.SGD, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.NAdam, {}),
    ],
)
def test_training_goes_on_as_if_nothing_had_happened(optimizer: Any, settings: Options) -> None:
    model, opt = make(optimizer, **settings)
    train(model, opt, 3)
    saved = through_json(ModelState(model, opt).capture())
    train(model, opt, 3)
    other, other_opt = make(optimizer, **settings)
    ModelState(other, other_opt).restore(saved)
    train(other, other_opt, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


class _WithExtra(nn.Module):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.ones(2)), torch.zeros(3)

    def get_extra_state(self) -> torch.Tensor:
        return self.seen

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.seen = state


def test_nothing_of_the_model_lies_in_what_it_was_restored_from() -> None:
    model = _WithExtra()
    optimizer = torch.optim.Adam(model.parameters())
    model.weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    saved = through_json(ModelState(model, optimizer).capture())
    ModelState(model, optimizer).restore(saved)
    kept = {tensor.data_ptr() for tensor in (model.weight, model.seen, *optimizer.state[model.weight].values())}
    assert kept.isdisjoint(tensor.data_ptr() for tensor in saved.tensors.values())


def test_names_depend_on_parameters_only() -> None:
    model, opt = make()
    train(model, opt, 1)
    names = ModelState(model, opt).capture().tensors
    assert {"model/0.weight", "model/1.running_mean", "optimizer/0.weight/exp_avg", "optimizer/2.bias/step"} <= set(
        names
    )


def test_what_the_task_has_changed_counts_and_the_rest_goes_on() -> None:
    model, opt = make(weight_decay=0.1)
    state = ModelState(model, opt)
    opt.param_groups[0]["eps"] = 0.5  # grew during training
    saved = through_json(state.capture())
    other, other_opt = make(weight_decay=0.2)
    ModelState(other, other_opt).restore(saved)
    group = other_opt.param_groups[0]
    assert (group["eps"], group["weight_decay"], group["betas"]) == (0.5, 0.2, (0.9, 0.999))


def test_an_optimizer_that_keeps_what_json_cannot_hold_is_named() -> None:
    model, opt = make()
    opt.param_groups[0]["schedule"] = lambda step: step
    with pytest.raises(ConfigurationError, match="keeps a function under 'schedule'"):
        ModelState(model, opt)


def test_a_tensor_in_pieces_is_one_tensor() -> None:
    upper = ShardRecord("a", 0, "", {"model/w": TensorRecord("float32", (2, 3), (0, 0))})
    lower = ShardRecord(
        "b", 0, "", {"model/w": TensorRecord("float32", (1, 3), (2, 0)), "n": TensorRecord("int64", (), ())}
    )
    manifest = Manifest(1, 1, 2, "Tensor", Cursor(1, 8, 8, 0), 0.0, "", (upper, lower))
    assert manifest.shapes() == {"model/w": ("float32", (3, 3)), "n": ("int64", ())}
    assert manifest.shapes("model/") == {"model/w": ("float32", (3, 3))}


def hash_of(**tensors: TensorRecord) -> str:
    """Of a model in one shard; `_` in a name stands for a slash."""
    return model_sha256([ShardRecord("a", 0, "", {name.replace("_", "/"): one for name, one in tensors.items()})])


def test_the_models_hash_sees_names_dtypes_shapes_and_bytes_and_nothing_else() -> None:
    record = TensorRecord("float32", (2,), (0,), "aa")
    same = hash_of(model_a=record, optimizer_a_step=record)
    assert same == hash_of(model_a=record, compression_0_error_0=record)
    for other in (
        hash_of(model_b=record),
        hash_of(model_a=TensorRecord("int32", (2,), (0,), "aa")),
        hash_of(model_a=TensorRecord("float32", (1, 2), (0, 0), "aa")),
        hash_of(model_a=TensorRecord("float32", (2,), (0,), "ab")),
    ):
        assert other != same
