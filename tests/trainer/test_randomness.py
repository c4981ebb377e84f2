"""Random numbers that a task draws: the same ones for all who work on the same samples, and after a death."""

import pytest

from tests.trainer.ranks import NewJob, Options

NOISY: Options = {"task": "small_tasks:WithNoisySamples", "arguments": {"dropout": 0.0}}
BY_TWO: Options = {"data": 2, "pipeline": 2}


@pytest.mark.parametrize(
    ("strategy", "options", "world", "shares"), [("Pipeline", {}, 2, 1), ("Mesh", BY_TWO, 4, 2)], ids=str
)
def test_inputs_and_targets_of_a_sample_come_from_one_draw_on_all_stages(
    new_job: NewJob, strategy: str, options: Options, world: int, shares: int
) -> None:
    expected = new_job("whole", **NOISY).run(shares).losses()
    job = new_job("stages", **NOISY, strategy=strategy, strategy_options=options).run(world)
    assert job.losses() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("strategy", "world"), [("AllReduce", 2), ("Pipeline", 2)])
def test_a_resumed_run_draws_what_an_undisturbed_one_draws(new_job: NewJob, strategy: str, world: int) -> None:
    plan = {**NOISY, "arguments": {"dropout": 0.2}, "strategy": strategy}
    whole = new_job("whole", **plan).run(world)
    job = new_job("parts", **plan).but(steps=3).run(world).but(steps=6).run(world, attempt=2)
    assert job.manifest(6)["model_sha256"] == whole.manifest(6)["model_sha256"]
