"""What cannot be split so is refused before any step, with the numbers that would work."""

from typing import Any

import pytest
import torch
from torch import nn
from trainmaster_trainer.data import Batch
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.strategies.axes import Axes
from trainmaster_trainer.strategies.microbatches import split
from trainmaster_trainer.strategies.stages import Stage, balance, cut

from tests.trainer.ranks import NewJob, Options

DIGITS = "trainmaster_trainer.tasks.digits:Digits"
TEXT = {"task": "trainmaster_trainer.tasks.text:Text", "arguments": {"heads": 4, "width": 16, "bytes": 100_000}}


@pytest.mark.parametrize(
    ("strategy", "world", "plan", "message"),
    [
        ("Pipeline", 3, {"task": DIGITS, "arguments": {"layers": 1}}, "it has 2 layers with parameters (0, 3). Use 2"),
        ("Pipeline", 2, {"task": "split_tasks:Opaque"}, "Write its method model_layers(self, model)"),
        ("Pipeline", 2, {"task": "split_tasks:Shortcut"}, "(first, last), one after the other, give other outputs"),
        ("Pipeline", 2, {"task": DIGITS, "strategy_options": {"microBatches": 11}}, "Lower it to 10 at most"),
        ("Pipeline", 2, {"task": DIGITS, "strategy_options": {"schedule": "2F"}}, "is not one of GPipe, 1F1B"),
        ("Tensor", 2, {"task": "split_tasks:Opaque"}, "Write its method tensor_plan(self, model)"),
        ("Tensor", 2, {"task": "split_tasks:TiedLayers"}, "splits 0, which shares a parameter with 2, and would untie"),
        ("Tensor", 3, TEXT, "3 tensor ranks cannot share out the 16 outputs of blocks.0.attention.query evenly."),
        ("Tensor", 8, {**TEXT, "arguments": {**TEXT["arguments"], "layers": 1}}, "fit this model: 1, 2, 4."),  # type: ignore[dict-item]
        ("Mesh", 2, {"task": DIGITS, "strategy_options": {"data": 3}}, "to 3, or mesh.data to 2."),
        ("Mesh", 3, {"task": DIGITS, "strategy_options": {"tensor": 2}}, "spec.workers.gpus to 2."),
        ("FullySharded", 2, {"task": "split_tasks:Scalar"}, "Give it the shape [1]"),
        ("FullySharded", 2, {"task": "split_tasks:Factored"}, "Adafactor, cannot compute with the parts of parameters"),
        ("FullySharded", 2, {"task": DIGITS, "strategy_options": {"speed": 1}}, "FullySharded has no such option"),
    ],
)
def test_a_job_is_refused_with_the_cure(
    new_job: NewJob, strategy: str, world: int, plan: Options, message: str
) -> None:
    running = new_job(strategy=strategy, **plan).start(world)
    codes = running.wait()
    assert 78 in codes, running.output()
    assert set(codes) <= {78, 1}, "1 is a rank that was still about to meet one which had ended"
    assert message in running.output()


def layers(*sizes: int) -> list[tuple[str, nn.Module]]:
    return [(f"l{number}", nn.Linear(size, 1, bias=False) if size else nn.ReLU()) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "stages", "expected"),
    [
        ((1, 1, 1, 1), 2, [2, 2]),
        ((9, 1, 1, 1), 2, [1, 3]),
        ((1, 1, 1, 9), 3, [1, 2, 1]),
        ((1, 0, 0, 1, 0), 2, [3, 2]),  # what learns nothing stays with the layer before
        ((0, 5, 5), 2, [2, 1]),
        ((3, 3, 3), 1, [3]),
    ],
)
def test_stages_are_balanced_by_parameters(sizes: tuple[int, ...], stages: int, expected: list[int]) -> None:
    found = layers(*sizes)
    model = nn.ModuleList(layer for _, layer in found)
    assert [len(run) for run in cut(model, found, stages)] == expected


def test_the_dearest_stage_is_as_cheap_as_can_be() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        costs = torch.randint(1, 20, (7,), generator=generator).tolist()
        ends = balance(costs, 3)
        best = min(max(sum(costs[:a]), sum(costs[a:b]), sum(costs[b:])) for a in range(1, 6) for b in range(a + 1, 7))
        assert max(sum(costs[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)) == best
        assert ends[-1] == 7
        assert sorted(set(ends)) == ends


def tied() -> tuple[nn.Module, Any]:
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)
    last.weight = first.weight
    return nn.Sequential(first, last), [("first", first), ("last", last)]


def counted_twice() -> tuple[nn.Module, Any]:
    """Each stage would count for itself."""
    first, count, last = nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False), nn.Linear(2, 2)
    return nn.Sequential(first, count, last, count), [("a", first), ("count", count), ("b", last), ("again", count)]


def test_layers_on_two_stages_may_look_at_one_table() -> None:
    table = nn.Module()
    table.register_buffer("frequencies", torch.ones(2))
    first, last = nn.Sequential(nn.Linear(2, 2), table), nn.Sequential(nn.Linear(2, 2), table)
    stages = cut(nn.Sequential(first, last), [("first", first), ("last", last)], 2)
    assert [len(stage) for stage in stages] == [1, 1]


def forgotten() -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    return model, list(model.named_children())[:2]


def foreign() -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    return model, [*model.named_children(), ("another", nn.Linear(2, 2))]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (tied, "first and last share a parameter or a buffer"),
        (counted_twice, "count and again share a parameter or a buffer"),
        (forgotten, "leaves out 2, which has parameters"),
        (foreign, "has another, with parameters or buffers that the model does not have"),
    ],
)
def test_layers_that_are_not_the_model_are_refused(make: Any, message: str) -> None:
    model, chain = make()
    with pytest.raises(ConfigurationError, match=message):
        cut(model, chain, 2)


def test_micro_batches_weigh_every_sample_once_and_are_equally_long() -> None:
    batch = Batch((torch.arange(10), {"mask": torch.arange(10)}), torch.arange(10), 10, 10, 0.5)
    parts = split(batch, 4)
    assert [part.size for part in parts] == [3, 3, 2, 2]
    assert {len(part.inputs[0]) for part in parts} == {len(part.inputs[1]["mask"]) for part in parts} == {3}
    assert torch.cat([part.targets for part in parts]).tolist() == list(range(10))
    assert sum(part.fraction for part in parts) == pytest.approx(1.0)
    assert parts[3].inputs[0].tolist() == [8, 9, 8]  # filled up


def test_a_stage_takes_and_gives_tuples() -> None:
    class Swap(nn.Module):
        def forward(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
            return pair[1], pair[0]

    assert Stage([("a", Swap()), ("b", Swap()), ("c", Swap())])(torch.tensor(1), torch.tensor(2))[0] == 2


def test_neighbours_share_layers_and_stages_are_far_apart() -> None:
    axes = Axes(pipeline=2, data=2, sharded=1, tensor=2)
    assert [axes.place(rank).pipeline for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [axes.share(rank).index for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [axes.first_of_tensor(rank) for rank in range(8)] == [0, 0, 2, 2, 4, 4, 6, 6]
