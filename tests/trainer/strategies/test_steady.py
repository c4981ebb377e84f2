"""Parameters that change beside the optimizer's step: alike on all ranks, or refused where that would be lost."""

from __future__ import annotations

import pytest
import torch
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.strategies.outside_changes import OutsideChanges, is_looked_at, prints
from typing_extensions import override

from tests.trainer.crew import Crew
from tests.trainer.ranks import NewJob, Options

MESH: Options = {"strategy": "Mesh", "strategy_options": {"data": 2}}
TARGET: Options = {"task": "moving_tasks:WithTarget", "global_batch_size": 9}
MOVED = "the forward pass of the model changes its parameter target.weight"


@pytest.mark.parametrize(
    ("strategy", "options", "ranks", "inside"),
    [
        ("AllReduce", {}, 2, 1),
        ("AllReduce", {"algorithm": "Ring"}, 3, 1),
        ("Mirrored", {}, 2, 2),
        ("LocalSGD", {"every": 1}, 1, 1),
    ],
)
def test_a_target_network_follows_alike_on_all_ranks_also_after_a_restart(
    new_job: NewJob, strategy: str, options: Options, ranks: int, inside: int
) -> None:
    expected = new_job("one", **TARGET, strategy="OneDevice").but(steps=8).run(1)
    job = new_job("many", **TARGET, strategy=strategy, strategy_options=options)
    for attempt in (1, 2):
        job = job.but(steps=4 * attempt).run(ranks, attempt, ranks_per_pod=inside)
    assert job.losses() == pytest.approx(expected.losses(), rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "ranks_per_pod"),
    [
        ({"strategy": "CentralStorage"}, 2),
        ({"strategy": "FullySharded"}, 1),
        (MESH, 1),
        ({"strategy": "AllReduce", "reproducible": True}, 1),
        ({"strategy": "AllReduce", "micro_batch_size": 2}, 1),
        ({"strategy": "AllReduce", "arguments": {"idle": True}}, 1),
    ],
    ids=["CentralStorage", "FullySharded", "Mesh", "reproducible", "microBatchSize", "unused"],
)
def test_it_is_refused_where_a_move_would_be_lost_or_made_twice(
    new_job: NewJob, strategy: Options, ranks_per_pod: int
) -> None:
    running = new_job(**TARGET, **strategy).start(2, ranks_per_pod=ranks_per_pod)
    assert 78 in running.wait()
    assert MOVED in running.output()


def test_it_is_refused_by_parameter_servers(new_job: NewJob) -> None:
    crew = Crew(new_job(**TARGET, strategy="ParameterServer", strategy_options={"update": "Sync"}), 1, 1)
    try:
        assert crew.start().wait(0) == 78
        assert MOVED in crew.output()
    finally:
        crew.close()


@pytest.mark.parametrize("task", ["WithShortRows", "WithNoise"])
def test_copies_that_become_different_are_noticed(new_job: NewJob, task: str) -> None:
    running = new_job(task=f"moving_tasks:{task}", strategy="AllReduce", steps=50).start(2)
    assert running.wait() == [1, 1]
    assert "CopiesDifferError: The ranks' copies of the parameter 0.weight have become different" in running.output()


@pytest.mark.parametrize("value", ["nan", "inf", "1e30"])
def test_damage_to_one_copy_is_seen_by_all_ranks(new_job: NewJob, value: str) -> None:
    """All go on from an older checkpoint then, so all must know of it."""
    plan: Options = {"task": "moving_tasks:WithDamage", "arguments": {"value": value}, "checkpoint_shared": False}
    running = new_job(**plan, strategy="AllReduce", steps=50).start(2)
    assert running.wait() == [1, 1]
    assert running.output().count("CopiesDifferError: The ranks' copies of the parameter 0.weight") == 2


@pytest.mark.parametrize("strategy", [{"strategy": "FullySharded"}, MESH], ids=["FullySharded", "Mesh"])
def test_a_hook_trains_what_the_optimizer_has_now(new_job: NewJob, strategy: Options) -> None:
    plan: Options = {"task": "moving_tasks:WithBounds", "arguments": {"held": True}}
    expected = new_job("one", **plan, strategy="OneDevice").run(1)
    assert new_job("two", **plan, **strategy).run(2).losses() == pytest.approx(expected.losses(), rel=1e-4)


@pytest.mark.parametrize("strategy", [{"strategy": "FullySharded"}, MESH], ids=["FullySharded", "Mesh"])
def test_a_hook_with_parameters_of_the_beginning_is_refused(new_job: NewJob, strategy: Options) -> None:
    running = new_job(task="moving_tasks:WithBounds", arguments={"held": False}, **strategy).start(2)
    assert running.wait() == [78, 78]
    assert "something keeps a parameter of shape [8, 3] as optimizer() was given it" in running.output()


def test_a_parameter_without_numbers_is_refused_where_it_would_be_cut(new_job: NewJob) -> None:
    running = new_job(task="moving_tasks:WithNothing", strategy="FullySharded").start(2)
    assert running.wait() == [78, 78]
    assert "the parameter nothing has the shape [0, 4]" in running.output()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex128, torch.int8])
@pytest.mark.parametrize("shape", [(1,), (3, 2)])
def test_a_print_tells_one_changed_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    flat = torch.ones(6, dtype=dtype)
    tensor = flat[0] if shape == (1,) else flat.view(shape).mT  # a number without dimensions; a view that is not whole
    before = prints({"it": tensor})
    assert prints({"it": tensor.clone()}) == before
    flat.view(torch.uint8)[0] ^= 1
    assert prints({"it": tensor}) != before


def test_a_print_of_nothing_is_one() -> None:
    assert prints({"nothing": torch.zeros(0, 4)}) == {"nothing": 0}


class Late(torch.nn.Linear):
    """Changes its weights from the 21st call on, and whenever it is called in eval mode."""

    calls = 0

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.weight.data += 0.1 * (self.calls > 20 or not self.training)
        return super().forward(input)


def test_a_late_move_is_noticed_and_evaluation_is_left_alone() -> None:
    module, points = Late(2, 1), torch.ones(1, 2)
    OutsideChanges("a test", module, lambda: dict(module.named_parameters()))
    module.eval()(points)
    module.train()
    for _ in range(31):
        module(points)
    with pytest.raises(ConfigurationError, match=r"changes its parameter weight.*With a test"):
        module(points)


def test_ever_fewer_of_the_steps_are_looked_at() -> None:
    assert [number for number in range(1, 70) if is_looked_at(number)] == [1, 2, 4, 8, 16, 32, 64]
