"""A loss that is a sum with a count: the mean over the whole batch's tokens, whoever computes which of them."""

import pytest
import torch
from torch import nn
from trainmaster_trainer.answers import loss_of
from trainmaster_trainer.counted_loss import Loss, factor_of
from trainmaster_trainer.data import Batch
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.numerics import Numerics

from tests.trainer.counted_tasks import Tokens
from tests.trainer.ranks import NewJob, Options

PLAN: Options = {"task": "counted_tasks:Tokens", "global_batch_size": 7, "steps": 6, "checkpoint_every": 6}
EXPECTED: dict[str, list[float]] = {}


@pytest.fixture
def expected(new_job: NewJob) -> list[float]:
    """The losses of torch's own mean over tokens, on one device."""
    if not EXPECTED:
        EXPECTED["one"] = new_job("one", strategy="OneDevice", arguments={"pair": False}, **PLAN).run(1).losses()
    return EXPECTED["one"]


@pytest.mark.parametrize(
    ("strategy", "world", "more"),
    [
        ("OneDevice", 1, {"micro_batch_size": 3}),
        ("AllReduce", 2, {}),
        ("AllReduce", 3, {"micro_batch_size": 2}),
        ("Mirrored", 2, {}),
        ("CentralStorage", 3, {}),
        ("FullySharded", 3, {"micro_batch_size": 2}),
    ],
)
def test_losses_are_those_of_the_mean_over_all_tokens(
    new_job: NewJob, expected: list[float], strategy: str, world: int, more: Options
) -> None:
    inside = world if strategy in ("Mirrored", "CentralStorage") else 1
    job = new_job(strategy=strategy, **PLAN, **more).run(world, ranks_per_pod=inside)
    assert job.losses() == pytest.approx(expected, rel=1e-5)


def test_who_shares_samples_counts_them_once(new_job: NewJob, expected: list[float]) -> None:
    job = new_job(strategy="Mesh", strategy_options={"data": 2, "tensor": 2}, **{**PLAN, "task": "counted_tasks:Split"})
    assert job.run(4).losses() == pytest.approx(expected, rel=1e-5)


def test_gradients_are_divided_before_they_are_shortened() -> None:
    model = nn.Linear(1, 1, bias=False)
    numerics = Numerics(max_norm=1.0)
    batch = Batch(torch.ones(4, 1), None, 4, 4, 0.0)
    told = numerics.backward(batch, lambda part: Loss(model(part.inputs).sum(), torch.tensor(8.0)))
    told = numerics.over_counts(told, 4, lambda count: count)
    numerics.settle(model.parameters())
    assert model.weight.grad is not None
    assert model.weight.grad.item() == pytest.approx(0.5)
    assert told.item() == pytest.approx(model.weight.item() / 2)


def test_the_next_step_of_means_is_left_as_it_is() -> None:
    numerics = Numerics()
    weight = torch.ones((), requires_grad=True)
    batch = Batch(torch.ones(4, 1), None, 4, 4, 0.0)
    numerics.backward(batch, lambda _: Loss(weight * 3, torch.tensor(6.0)))
    assert numerics.over_counts(torch.ones(()), 4, lambda count: count).item() == pytest.approx(4 / 6)
    loss = numerics.backward(batch, lambda _: Loss(weight * 3))
    assert numerics.over_counts(loss, 4, lambda count: count) is loss


@pytest.mark.parametrize("count", [-1.0, float("nan"), float("inf")])
def test_a_count_that_is_none_is_refused(count: float) -> None:
    with pytest.raises(ConfigurationError, match=r"the count that loss\(\) gave"):
        factor_of(4, torch.tensor(count))


def test_a_batch_in_which_nothing_counts_moves_nothing() -> None:
    assert factor_of(4, torch.tensor(0.0)) == 0.0


@pytest.mark.parametrize("what", ["LocalSGD", "Pipeline"])
def test_strategies_that_cannot_carry_it_say_so(what: str) -> None:
    model = Tokens().model()
    inputs, targets = Tokens().dataset()  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match=f"a sum with a count, which {what} cannot carry.*or choose OneDevice"):
        loss_of(Tokens(), model(inputs), targets).mean_for(what)


def test_local_sgd_refuses_it_when_it_trains(new_job: NewJob) -> None:
    running = new_job(strategy="LocalSGD", **PLAN).start(1)
    assert running.wait() == [78]
    assert "which LocalSGD cannot carry" in running.output()


def test_reproducible_refuses_it_with_a_cure_that_helps(new_job: NewJob) -> None:
    running = new_job(strategy="AllReduce", reproducible=True, **{**PLAN, "global_batch_size": 8}).start(1)
    assert running.wait() == [78]
    assert "or remove spec.reproducible" in running.output()
