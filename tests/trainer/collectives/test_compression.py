"""Compression: how many bytes travel, what the sum loses, that it learns, and that a resume goes on bit by bit."""

import pytest
import torch
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.collectives.int8 import pack, unpack

from tests.trainer.ranks import Job, NewJob, Options

COMPRESSIONS = ["BF16", "INT8", "PowerSGD", "TopK"]
DIGITS: Options = {
    "task": "trainmaster_trainer.tasks.digits:Digits",
    "arguments": {"hidden": 64},
    "global_batch_size": 64,
    "steps": 200,
    "checkpoint_every": 200,
}


def test_int8_is_off_by_half_a_127th_of_the_largest_of_a_block() -> None:
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    numbers[300:600] *= 1000
    back = unpack(pack(numbers), numbers)
    for first in range(0, 1000, 256):
        block = slice(first, min(first + 256, 1000))
        assert (back[block] - numbers[block]).abs().max() <= numbers[block].abs().max() / 127 / 2 * 1.001
    assert torch.equal(unpack(pack(torch.zeros(5)), torch.zeros(5)), torch.zeros(5))


def test_int8_does_not_hide_that_a_gradient_is_no_number() -> None:
    numbers = torch.ones(300)
    numbers[7] = float("nan")
    assert unpack(pack(numbers), numbers).isnan().any()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_the_bytes_are_a_half_and_a_quarter(new_job: NewJob, world: int) -> None:
    moved = {
        name: new_job(name).call(
            world,
            "steps:traffic",
            strategy="AllReduce",
            options={"algorithm": "Native", "compression": name},
            steps=3,
            task="Wide",
        )
        for name in ("None", "BF16", "INT8")
    }
    for rank in range(world):
        whole = moved["None"][rank]["sent"]
        assert moved["BF16"][rank]["sent"] == pytest.approx(whole / 2, rel=1e-3)
        assert moved["INT8"][rank]["sent"] <= moved["BF16"][rank]["sent"] * 0.6 if world > 2 else whole * 0.3


def test_top_k_sends_8_bytes_for_each_of_a_hundredth(new_job: NewJob) -> None:
    options = {"compression": "TopK"}
    few, more = (
        new_job(str(steps)).call(3, "steps:traffic", strategy="AllReduce", options=options, steps=steps, task="Wide")
        for steps in (2, 4)
    )
    parameters = 3 * 800 + 800 + 800 + 1
    for before, after in zip(few, more, strict=True):
        assert after["sent"] - before["sent"] == 2 * 2 * 8 * (parameters // 100)  # steps, peers, bytes, numbers


@pytest.mark.parametrize(("compression", "costs"), [("BF16", 0.01), ("INT8", 0.01), ("PowerSGD", 0.03), ("TopK", 0.05)])
def test_it_learns_digits(new_job: NewJob, compression: str, costs: float) -> None:
    plain = new_job("plain", **DIGITS).run(2).result()["metrics"]["accuracy"]
    job = new_job("compressed", strategy_options={"compression": compression}, **DIGITS).run(2)
    assert job.result()["metrics"]["accuracy"] > plain - costs


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_resumed_is_undisturbed_bit_by_bit(new_job: NewJob, compression: str, world: int) -> None:
    plan: Options = {"strategy_options": {"compression": compression}, "arguments": {"width": 4, "dropout": 0.2}}
    whole = new_job("whole", **plan).but(steps=20).run(world)
    job = new_job("parts", **plan).but(steps=14).run(world).but(steps=20).run(world, attempt=2)
    assert job.losses() == whole.losses()
    assert job.manifest(20)["model_sha256"] == whole.manifest(20)["model_sha256"]


@pytest.mark.parametrize("compression", ["PowerSGD", "TopK"])
def test_another_number_of_ranks_forgets_what_was_left_out(new_job: NewJob, compression: str) -> None:
    job = new_job(strategy_options={"compression": compression}).but(steps=12).run(2).but(steps=16).run(3, attempt=2)
    job.but(strategy="OneDevice", strategy_options={}, steps=18).run(1, attempt=3)
    assert len(job.losses()) == 18


@pytest.mark.parametrize("task", ["odd_tasks:WithExperts", "chain_tasks:WithManyBuckets"])
def test_power_sgd_sums_one_bucket_after_the_other(new_job: NewJob, task: str) -> None:
    """From step 10 on it compresses: each bucket is summed three times, and DDP may have a sum of its own beside it."""
    plan: Options = {"task": task, "steps": 40, "checkpoint_every": 40}
    job = new_job(strategy="AllReduce", strategy_options={"compression": "PowerSGD"}, **plan).run(2)
    assert len(job.losses()) == 40


PHASES: Options = {"task": "odd_tasks:WithPhases", "steps": 20, "checkpoint_every": 20}


@pytest.mark.parametrize(
    ("strategy", "options", "off"),
    [
        ("AllReduce", {"compression": "BF16"}, 0.05),
        ("AllReduce", {"compression": "INT8"}, 0.05),
        ("AllReduce", {"compression": "TopK"}, 0.9),
        ("LocalSGD", {"compression": "BF16", "every": 1, "outer": "Average"}, 0.05),
        ("LocalSGD", {"compression": "INT8", "every": 1, "outer": "Average"}, 0.05),
    ],
)
def test_complex_gradients_keep_their_imaginary_part(
    new_job: NewJob, strategy: str, options: Options, off: float
) -> None:
    one = new_job("one", strategy="OneDevice", **PHASES)
    first, expected = waves(one.but(steps=1).run(1)), waves(one.run(1, attempt=2))
    found = waves(new_job("two", strategy=strategy, strategy_options=options, **PHASES).run(2))
    way = (expected - first).imag
    assert (found - expected).imag.norm() < off * way.norm()


def waves(job: Job) -> torch.Tensor:
    """The complex parameter at the end."""
    return read(job.checkpoints(), job.plan.steps).state.tensors["model/waves"]


@pytest.mark.parametrize("algorithm", ["Ring", "Driver", "Hierarchical"])
def test_bf16_goes_with_every_algorithm(new_job: NewJob, algorithm: str) -> None:
    plain = new_job("plain").run(3).losses()
    options = {"algorithm": algorithm, "compression": "BF16"}
    assert new_job("bf16", strategy_options=options).run(3).losses() == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize("compression", ["BF16", "INT8"])
def test_local_sgd_compresses_what_it_exchanges(new_job: NewJob, compression: str) -> None:
    plan: Options = {"strategy": "LocalSGD", "task": "small_tasks:LineWithPlainSGD", "steps": 12}
    plain = new_job("plain", strategy_options={"every": 2}, **plan).run(2).losses()
    options = {"every": 2, "compression": compression}
    assert new_job("small", strategy_options=options, **plan).run(2).losses() == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("AllReduce", {"algorithm": "Ring", "compression": "INT8"}, "goes with Native only"),
        ("AllReduce", {"compression": "ZIP"}, "spec.strategy.compression: 'ZIP' is not one of None, BF16"),
        ("LocalSGD", {"compression": "TopK"}, "'TopK' is not one of None, BF16, INT8"),
    ],
)
def test_what_does_not_go_together_is_refused(new_job: NewJob, strategy: str, options: Options, message: str) -> None:
    running = new_job(strategy=strategy, strategy_options=options).start(1)
    assert running.wait() == [78]
    assert message in running.output()
