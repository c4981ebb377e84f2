"""Precision, loss scale and clipping: the same under every strategy, as torch's own, and through a death."""

from typing import Any

import pytest
import torch
from torch import nn
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import Batch, Share
from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.numerics import LossScale, Numerics

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import Job, NewJob, Options

STEPS = 6
NORM = 0.3  # shortens every gradient of these tasks
SPLIT: list[tuple[str, Options, int]] = [
    ("FullySharded", {}, 3),
    ("Pipeline", {}, 2),
    ("Tensor", {}, 2),
    ("Mesh", {"data": 2, "sharded": 2}, 4),
    ("Mesh", {"pipeline": 2, "tensor": 2}, 4),
    ("Mesh", {"sharded": 2, "tensor": 2}, 4),
]
WHOLE: list[tuple[str, Options, int]] = [
    ("AllReduce", {}, 3),
    ("Mirrored", {"reduction": "OneDevice"}, 2),
    ("CentralStorage", {}, 3),
]
TEXT: Options = {
    "task": "trainmaster_trainer.tasks.text:Text",
    "arguments": {"layers": 2, "width": 16, "heads": 4, "context": 16, "bytes": 100_000},
    "steps": STEPS,
    "checkpoint_every": STEPS,
    "global_batch_size": 50,
}
ONE: dict[str, Job] = {}


def one_device(new_job: NewJob, **numerics: Any) -> list[float]:
    """OneDevice's losses, made once for each way to compute."""
    key = str(numerics)
    if key not in ONE:
        ONE[key] = new_job(f"one-{len(ONE)}", strategy="OneDevice", **TEXT, **numerics).run(1)
    return ONE[key].losses()


def trained(new_job: NewJob, strategy: str, options: Options, world: int, **numerics: Any) -> Job:
    inside = world if strategy in ("Mirrored", "CentralStorage") else 1
    job = new_job(strategy=strategy, strategy_options=options, **TEXT, **numerics)
    return job.run(world, ranks_per_pod=inside)


PARTED = [row for row in (*WHOLE, *SPLIT) if row[0] != "Pipeline" and "pipeline" not in row[1]]


@pytest.mark.parametrize(("strategy", "options", "world"), [row for row in SPLIT if row not in PARTED], ids=str)
def test_a_shortened_gradient_is_the_whole_models(new_job: NewJob, strategy: str, options: Options, world: int) -> None:
    """That of the other strategies is likewise, in parts: see below."""
    expected = one_device(new_job, max_gradient_norm=NORM)
    assert trained(new_job, strategy, options, world, max_gradient_norm=NORM).losses() == pytest.approx(
        expected, rel=1e-5
    )
    assert expected != pytest.approx(one_device(new_job), rel=1e-4)


# FP16 scales the loss besides: where steps take long, that one alone.
IN_16_BITS = [
    (*row, precision)
    for row in (*WHOLE, *SPLIT)
    for precision in (["FP16"] if row[0] in ("Tensor", "Mesh") else ["BF16", "FP16"])
]


@pytest.mark.parametrize(("strategy", "options", "world", "precision"), IN_16_BITS, ids=str)
def test_in_16_bits_every_strategy_is_near_one_device(
    new_job: NewJob, strategy: str, options: Options, world: int, precision: str
) -> None:
    expected = one_device(new_job, precision=precision, max_gradient_norm=NORM)
    found = trained(new_job, strategy, options, world, precision=precision, max_gradient_norm=NORM).losses()
    assert found == pytest.approx(expected, rel=1e-3)
    full = one_device(new_job, max_gradient_norm=NORM)
    assert expected == pytest.approx(full, rel=1e-2)
    assert expected != full


@pytest.mark.parametrize("precision", [None, "FP16"])
def test_reproducible_sums_stay_so(new_job: NewJob, precision: str | None) -> None:
    numerics = {"precision": precision, "max_gradient_norm": NORM, "reproducible": True}
    jobs = [new_job(str(world), **TEXT, **numerics).run(world) for world in (1, 2)]
    assert len({job.manifest(STEPS)["model_sha256"] for job in jobs}) == 1


# --- in parts ---


@pytest.mark.parametrize(("strategy", "options", "world"), PARTED, ids=str)
def test_parts_of_a_batch_add_up_to_it(new_job: NewJob, strategy: str, options: Options, world: int) -> None:
    """50 samples are shared unevenly among 3 ranks, and neither 17, 16 nor 25 divide by 7."""
    found = trained(new_job, strategy, options, world, max_gradient_norm=NORM, micro_batch_size=7).losses()
    assert found == pytest.approx(one_device(new_job, max_gradient_norm=NORM), rel=1e-5)


@pytest.mark.parametrize("strategy", ["OneDevice", "LocalSGD"])
def test_parts_of_one_sample_add_up_too(new_job: NewJob, strategy: str) -> None:
    job = new_job(strategy=strategy, **TEXT, micro_batch_size=1).run(1)
    assert job.losses() == pytest.approx(one_device(new_job), rel=1e-5)


def test_virtual_ranks_in_parts_end_with_the_same_bits(new_job: NewJob) -> None:
    jobs = [new_job(str(world), **TEXT, reproducible=True, micro_batch_size=3).run(world) for world in (1, 3)]
    assert len({job.manifest(STEPS)["model_sha256"] for job in jobs}) == 1
    assert jobs[0].losses() == pytest.approx(one_device(new_job), rel=1e-5)


def test_a_run_in_parts_that_was_killed_ends_with_the_same_bits(new_job: NewJob) -> None:
    plan = {**TEXT, "steps": 10, "checkpoint_every": 2, "micro_batch_size": 4}
    whole = new_job("whole", **plan).run(3)
    job = new_job("killed", **plan)
    first = job.start(3)
    first.reach(5)
    first.kill()
    job.run(3, attempt=2)
    assert job.manifest(10)["model_sha256"] == whole.manifest(10)["model_sha256"]


@pytest.mark.parametrize("update", ["Sync", "Async"])
def test_workers_of_a_server_compute_in_parts(new_job: NewJob, new_crew: NewCrew, update: str) -> None:
    job = new_crew(1, 1, strategy_options={"update": update}, micro_batch_size=7, **TEXT).start().finish()
    assert job.losses() == pytest.approx(one_device(new_job), rel=1e-5)


def test_a_synchronous_server_shortens_the_whole_batchs_gradient(new_job: NewJob, new_crew: NewCrew) -> None:
    job = new_crew(3, 1, strategy_options={"update": "Sync"}, max_gradient_norm=NORM, **TEXT).start().finish()
    assert job.losses() == pytest.approx(one_device(new_job, max_gradient_norm=NORM), rel=1e-5)


def test_asynchronous_workers_shorten_their_own(new_job: NewJob, new_crew: NewCrew) -> None:
    """One worker, one server: nobody is stale, so it is what OneDevice does."""
    numerics = {"precision": "BF16", "max_gradient_norm": NORM}
    job = new_crew(1, 2, strategy_options={"update": "Async"}, **numerics, **TEXT).start().finish()
    assert job.losses() == pytest.approx(one_device(new_job, **numerics), rel=1e-3)


def test_no_more_samples_are_in_memory_at_once() -> None:
    seen: list[int] = []
    weight = nn.Parameter(torch.ones(3))

    def loss(part: Batch) -> Loss:
        seen.append(len(part.inputs))
        return Loss((part.inputs @ weight).mean())

    inputs = torch.randn(50, 3)
    mean = Numerics(micro_batch=8).backward(Batch(inputs, inputs, 50, 50, 0.0), loss)
    assert max(seen) <= 8
    assert sum(seen) == 50
    torch.testing.assert_close(mean, (inputs @ weight).mean())
    torch.testing.assert_close(weight.grad, inputs.mean(dim=0))


@pytest.mark.parametrize("batch", [3, 9, 50])
@pytest.mark.parametrize("shares", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 2, 7, 60])
def test_all_shares_have_as_many_parts(batch: int, shares: int, most: int) -> None:
    """Each part is a collective of its own under FullySharded."""
    counts = set()
    for index in range(shares):
        first, end = Share(index, shares).bounds(batch)
        parts = Batch(torch.arange(first, end), [str(one) for one in range(first, end)], end - first, batch, 0.0,
                      shares=shares).parts(most)  # fmt: skip
        counts.add(len(parts))
        assert torch.cat([part.inputs for part in parts]).tolist() == list(range(first, end))
        assert [int(text) for part in parts for text in part.targets] == list(range(first, end))
        assert all(1 <= part.size <= most + (most == 1) for part in parts)
    assert len(counts) == 1


# --- what overflows ---

LOUD: Options = {"task": "small_tasks:Loud", "precision": "FP16", "max_gradient_norm": 10.0, "steps": 12}


@pytest.mark.parametrize(("strategy", "world"), [("OneDevice", 1), ("AllReduce", 2), ("CentralStorage", 2)])
def test_steps_whose_gradients_overflow_are_not_taken(new_job: NewJob, strategy: str, world: int) -> None:
    job = new_job(strategy=strategy, **LOUD).run(world, ranks_per_pod=world)
    skipped = (job.folder / "output-1-0").read_text().count("this step is not taken")
    assert 2 < skipped < 12
    assert job.manifest(12)["scalars"]["loss_scale"]["value"] == 65536 / 2**skipped
    untrained = new_job("untrained", **{**LOUD, "precision": None, "max_gradient_norm": 1e-6}).run(1).losses()
    losses = job.losses()
    assert losses[:4] == pytest.approx(untrained[:4], rel=1e-3)  # the first three were surely not taken
    assert losses[-1] < 0.9 * untrained[-1]


@pytest.mark.parametrize(("strategy", "seconds"), [("AllReduce", 0.4), ("FullySharded", 0.4), ("Pipeline", 0.05)])
def test_the_loss_scale_outlives_a_death(new_job: NewJob, strategy: str, seconds: float) -> None:
    world = 2
    whole = new_job("whole", strategy=strategy, **LOUD).run(world)
    job = new_job("killed", strategy=strategy, **LOUD)
    first = job.but(arguments={"seconds": seconds}).start(world)  # so that the kill comes before the end
    first.reach(4)
    first.kill()
    assert not (job.checkpoints() / "result.json").exists()
    job.run(world, attempt=2)
    assert job.manifest(12)["model_sha256"] == whole.manifest(12)["model_sha256"]
    assert job.manifest(12)["scalars"] == whole.manifest(12)["scalars"]


def test_gradients_that_overflow_at_any_scale_end_the_attempt(new_job: NewJob) -> None:
    job = new_job(strategy="OneDevice", **{**LOUD, "arguments": {"loudness": 1e30}, "steps": 100})
    running = job.start(1)
    assert running.wait() == [1]
    assert "Set spec.training.precision to BF16 or FP32" in running.output()


def test_the_scale_is_halved_at_once_and_doubled_after_2000_good_steps() -> None:
    scale = LossScale()
    assert not scale.judge(finite=False)
    assert scale.value == 32768
    assert all(scale.judge(finite=True) for _ in range(1999))
    assert scale.value == 32768
    resumed = LossScale()
    resumed.restore(scale.state())
    resumed.judge(finite=True)
    assert resumed.value == 65536


def test_a_scale_without_end_is_an_error() -> None:
    scale = LossScale()
    while scale.value > LossScale.LEAST:
        assert not scale.judge(finite=False)
    with pytest.raises(NonFiniteLossError, match="step after step"):
        scale.judge(finite=False)


# --- beside torch's own ---


def with_gradients(*gradients: torch.Tensor) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    return parameters


@pytest.mark.parametrize("longest", [0.5, 1.0, 1e6])
def test_it_is_shortened_as_torch_does(longest: float) -> None:
    gradients = [torch.randn(7, 3), torch.randn(5).double(), torch.randn(())]
    ours, theirs = with_gradients(*gradients), with_gradients(*gradients)
    assert Numerics(None, longest).settle(ours)
    nn.utils.clip_grad_norm_(theirs, longest)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=0)


def test_sparse_gradients_are_shortened_as_dense_ones() -> None:
    sparse, dense = nn.Embedding(9, 4, sparse=True), nn.Embedding(9, 4)
    dense.load_state_dict(sparse.state_dict())
    for table in (sparse, dense):
        (table(torch.tensor([1, 1, 4])) ** 2).sum().backward()  # a row that is named twice
        assert Numerics(None, 0.1).settle(table.parameters())
    assert sparse.weight.grad is not None
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)


def test_without_any_gradient_there_is_nothing_to_shorten() -> None:
    assert Numerics(None, 0.1).settle([nn.Parameter(torch.zeros(3))])


def test_an_error_in_the_model_does_not_leave_the_precision_behind() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    Numerics("BF16").attach(model, torch.device("cpu"))
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 3))
    assert not torch.is_autocast_enabled("cpu")
    assert model(torch.ones(2, 4)).dtype == torch.float32
