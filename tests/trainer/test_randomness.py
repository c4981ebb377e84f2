"""Random numbers that a task draws: the same ones for all who work on the same samples, and after a death."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.crew import Crew
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


def splits(folder: Path) -> list[str]:
    """What each rank has chosen, and let go of it."""
    paths = sorted(folder.glob("split-*"))
    found = [path.read_text() for path in paths]
    for path in paths:
        path.unlink()
    return found


def test_what_a_task_draws_when_it_is_made_is_the_same_on_all_ranks_and_after_a_restart(
    new_job: NewJob, tmp_path: Path
) -> None:
    job = new_job(task="small_tasks:WithASplit", arguments={"folder": str(tmp_path)})
    job.but(steps=3).run(2)
    first = splits(tmp_path)
    job.run(3, attempt=2)
    again = splits(tmp_path)
    assert (len(first), len(again)) == (2, 3)
    assert len({*first, *again}) == 1


@pytest.fixture
def crew(new_job: NewJob, tmp_path: Path) -> Iterator[Crew]:
    job = new_job(strategy="ParameterServer", task="small_tasks:WithASplit", arguments={"folder": str(tmp_path)})
    crew = Crew(job, 2, 1)
    yield crew
    crew.close()


def test_so_it_is_where_members_start_one_by_one(crew: Crew, tmp_path: Path) -> None:
    crew.start().finish()
    found = splits(tmp_path)
    assert len(found) == 3
    assert len({*found}) == 1
