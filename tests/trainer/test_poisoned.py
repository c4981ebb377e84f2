"""Numbers that are none: what they leave in the weights is found before it is kept, and nothing else is given up."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.report import loss_to_tell
from trainmaster_trainer.strategies import find_strategy

from tests.trainer.crew import Crew
from tests.trainer.ranks import NewJob, Options, alone
from tests.trainer.small_tasks import LineWithRunningMeans

LAST: Options = {"task": "small_tasks:Rooted", "steps": 1}  # whose only loss is finite
WORDS = "NonFiniteLossError: The weights are not finite after step 1, the last one"


def kept(folder: Path) -> list[str]:
    """Checkpoints and results."""
    return sorted(path.name for path in folder.glob("*") if path.name.startswith(("step-", "result")))


@pytest.mark.parametrize(
    ("strategy", "world", "inside"),
    [
        ("OneDevice", 1, 1),
        ("AllReduce", 2, 1),
        ("CentralStorage", 2, 2),
        ("LocalSGD", 2, 1),
        ("FullySharded", 2, 1),
        ("Pipeline", 2, 1),
    ],
)
def test_a_job_whose_last_step_has_poisoned_the_weights_has_not_succeeded(
    new_job: NewJob, strategy: str, world: int, inside: int
) -> None:
    job = new_job(strategy=strategy, **LAST)
    running = job.start(world, ranks_per_pod=inside)
    assert running.wait() == [1] * world
    assert running.output().count(WORDS) == world
    assert kept(job.checkpoints()) == []


@pytest.mark.parametrize(("strategy", "servers", "teller"), [("ParameterServer", 1, 2), ("Gossip", 0, 0)])
def test_so_it_is_where_members_are_on_their_own(new_job: NewJob, strategy: str, servers: int, teller: int) -> None:
    job = new_job(strategy=strategy, **LAST)
    crew = Crew(job, 2, servers)
    try:
        assert crew.start().wait(teller) == 1
        assert "NonFiniteLossError: The " in crew.output()
        assert kept(job.checkpoints()) == []
    finally:
        crew.close()


@pytest.mark.parametrize("strategy", ["OneDevice", "AllReduce"])
def test_weights_that_no_gradient_reaches_may_be_what_they_like(new_job: NewJob, strategy: str) -> None:
    """Torch fills memory that nobody has written with NaN where `reproducible` has its way."""
    job = new_job(task="small_tasks:WithBlank", strategy=strategy, reproducible=strategy == "AllReduce").run(1)
    assert len(job.losses()) == 6


@pytest.mark.parametrize("servers", [1, 2])
def test_nor_does_a_parameter_server_look_at_them(new_job: NewJob, servers: int) -> None:
    job = new_job(task="small_tasks:WithBlank", strategy="ParameterServer", global_batch_size=8)
    crew = Crew(job, 2, servers)
    try:
        assert len(crew.start().finish().losses()) == 6
    finally:
        crew.close()


BURST: Options = {"task": "small_tasks:Poisoned", "arguments": {"step": 4, "poison": "inf"}, "global_batch_size": 8}


@pytest.mark.parametrize(
    ("strategy", "inside", "left"),
    [("AllReduce", 1, True), ("CentralStorage", 2, True), ("FullySharded", 1, True), ("Pipeline", 1, False)],
)
def test_an_infinite_loss_whose_step_the_loss_scale_refuses_ends_nothing(
    new_job: NewJob, strategy: str, inside: int, left: bool
) -> None:
    """The loss is that of the other shares, if there are `left` any."""
    options = {"microBatches": 1} if strategy == "Pipeline" else {}
    plan = {**BURST, "strategy": strategy, "strategy_options": options, "precision": "FP16"}
    job = new_job(**plan)
    running = job.start(2, ranks_per_pod=inside)
    assert running.wait() == [0, 0]
    assert running.output().count("The loss of that step is inf. As the step was not taken, it is left out.") == 1
    assert [step for step, loss in enumerate(job.losses(), 1) if loss is None] == ([] if left else [4])


@pytest.mark.parametrize("precision", [None, "BF16"])
def test_without_a_loss_scale_it_ends_the_attempt(new_job: NewJob, precision: str | None) -> None:
    running = new_job(**BURST, precision=precision).start(2)
    assert running.wait() == [1, 1]
    assert "The loss of step 4 is inf" in running.output()


def harm_nothing(_: nn.Module) -> None:
    return


def harm_a_weight(model: nn.Module) -> None:
    next(model.parameters()).data[0] = math.nan


def harm_a_running_mean(model: nn.Module) -> None:
    next(model.buffers())[0] = math.nan


@pytest.mark.parametrize(
    ("harm", "refused", "is_told"),
    [(harm_nothing, True, False), (harm_nothing, False, True), (harm_a_weight, True, True),
     (harm_a_running_mean, True, True)],
)  # fmt: skip
def test_it_is_told_where_it_may_have_harmed_something(
    harm: Callable[[nn.Module], None], refused: bool, is_told: bool
) -> None:
    strategy = find_strategy("OneDevice")(LineWithRunningMeans(), alone(), {})
    strategy.use(Numerics("FP16"))
    assert strategy.numerics.loss_scale is not None
    strategy.numerics.loss_scale.judge(finite=not refused)
    harm(strategy.model)
    for loss in (torch.tensor(math.inf), torch.tensor(math.nan)):
        assert (loss_to_tell(loss, strategy) is not None) == is_told
    assert loss_to_tell(torch.tensor(2.0), strategy) is not None
