"""Numbers that are none: what they leave in the weights is found before it is kept, and nothing else is given up."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainmaster.wire import names
from trainmaster_trainer.agent.evidence import read_error
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.rank_report import loss_to_tell
from trainmaster_trainer.strategies import find_strategy

from tests.trainer.crew import Crew
from tests.trainer.ranks import PATIENCE, Job, NewJob, Options, alone
from tests.trainer.small_tasks import LineWithRunningMeans

LAST: Options = {"task": "small_tasks:Rooted", "steps": 1}  # whose only loss is finite
WORDS = "NonFiniteLossError: The state after step 1 is not finite, so no checkpoint of it is kept"


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


STRUCK: Options = {"task": "small_tasks:Struck", "steps": 6, "checkpoint_every": 1}  # 5: AllReduce compares at 4 and 8


def struck(new_job: NewJob, tmp_path: Path, strategy: str, **arguments: Any) -> Job:
    """A job whose state is hit after step 5; its error file is where `before` looks."""
    given = {"step": 5, "marker": str(tmp_path / "marker"), **arguments}
    job = new_job(strategy=strategy, arguments=given, **STRUCK)
    return replace(job, variables={names.ENV_ERROR_FILE: str(tmp_path / "error")})


def before(tmp_path: Path) -> int:
    """Before which step a restart goes on, as a rank has told its agent."""
    error = read_error(tmp_path / "error")
    assert error is not None
    assert error.resume_before is not None
    return error.resume_before


@pytest.mark.parametrize(
    ("strategy", "inside", "rank"),
    [
        ("AllReduce", 1, 1),
        ("CentralStorage", 2, 0),
        ("LocalSGD", 1, 1),
        ("FullySharded", 1, 1),
        ("Pipeline", 1, 1),
    ],
)
@pytest.mark.parametrize(("what", "number"), [("weight", "nan"), ("moment", "inf")])
def test_a_state_that_is_not_finite_is_never_published(
    new_job: NewJob, tmp_path: Path, strategy: str, inside: int, rank: int, *, what: str, number: str
) -> None:
    """Here of one rank alone; the loss of its step is finite. The checkpoint before stays, though one is kept."""
    job = struck(new_job, tmp_path, strategy, what=what, number=number, rank=rank).but(checkpoint_keep=1)
    running = job.start(2, ranks_per_pod=inside)
    assert running.wait() == [1, 1], running.output()
    assert kept(job.checkpoints()) == ["step-00000004"]
    assert before(tmp_path) == 5
    again = replace(job, variables={names.ENV_RESUME_BEFORE: "5", names.ENV_DOUBTED_ATTEMPT: "1"})
    again.run(2, attempt=2, ranks_per_pod=inside)
    assert min(line["step"] for line in job.lines() if line["attempt"] == 2) == 5
    assert len(job.losses()) == 6


@pytest.mark.parametrize(("strategy", "servers", "teller"), [("ParameterServer", 1, 2), ("Gossip", 0, 0)])
def test_nor_where_members_are_on_their_own(
    new_job: NewJob, tmp_path: Path, strategy: str, servers: int, teller: int
) -> None:
    """The weights are lost with the first step, whose loss is finite."""
    job = new_job(strategy=strategy, **{**LAST, "steps": 400}, checkpoint_every=1)
    crew = Crew(replace(job, variables={names.ENV_ERROR_FILE: str(tmp_path / "error")}), 2, servers)
    try:
        assert crew.start().wait(teller) == 1
        assert kept(job.checkpoints()) == []
        assert before(tmp_path) == 1
    finally:
        crew.close()


def test_nor_in_private_folders(new_job: NewJob, tmp_path: Path) -> None:
    """Each replica writes alone, and one of them alone is hit."""
    job = struck(new_job, tmp_path, "AllReduce", what="moment", number="inf", rank=1)
    running = job.but(checkpoint_shared=False).start(2)
    assert running.wait() == [1, 1], running.output()
    assert "step-00000005" not in kept(job.folder / "pod-1")
    assert before(tmp_path) == 5


def test_a_snapshot_in_memory_that_is_not_finite_is_not_gone_on_from(new_job: NewJob, tmp_path: Path) -> None:
    """The process is killed before anybody has seen a loss of it: the state after step 3 is what memory has."""
    job = struck(new_job, tmp_path, "AllReduce", step=3)
    job = replace(job.but(task="late_tasks:StruckThenStill", checkpoint_every=2, memory_every=3, steps=8), memory=True)
    running = job.start(1)
    running.reach(3)
    deadline = time.monotonic() + PATIENCE
    while not (job.checkpoints() / "step-00000002").exists():  # it is saved beside the steps
        assert time.monotonic() < deadline, running.output()
        time.sleep(0.01)
    running.kill()
    job.run(1, attempt=2)
    assert "The snapshot of step 3 in memory is not used: " in (job.folder / "output-2-0").read_text()
    assert min(line["step"] for line in job.lines() if line["attempt"] == 2) == 3


@pytest.mark.parametrize(
    "strategy", ["OneDevice", "AllReduce", "LocalSGD", "FullySharded", "Gossip", "ParameterServer"]
)
def test_a_mask_of_infinite_numbers_is_no_poison(new_job: NewJob, strategy: str) -> None:
    options = {"every": 2} if strategy == "LocalSGD" else {}
    job = new_job(task="small_tasks:Masked", strategy=strategy, strategy_options=options, steps=4)
    if strategy in ("Gossip", "ParameterServer"):
        crew = Crew(job, 2, int(strategy == "ParameterServer"))
        try:
            crew.start().finish()
        finally:
            crew.close()
    else:
        job.run(1 if strategy == "OneDevice" else 2)
    assert all(loss is not None and math.isfinite(loss) for loss in job.losses())
    assert "step-00000004" in kept(job.checkpoints())


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
