"""Gossip whose checkpoints are in an object store, which one member writes and one fetches for all."""

from pathlib import Path

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import Options

LINE: Options = {"task": "small_tasks:Line", "arguments": {"seconds": 0.03}, "steps": 60, "checkpoint_every": 20}


def test_with_an_object_store_all_wait_for_the_one_that_fetches(tmp_path: Path, new_crew: NewCrew) -> None:
    plan = {**LINE, "checkpoint_url": f"file://{tmp_path}/store"}
    crew = new_crew(3, **plan).start()
    crew.reach(30)
    crew.stands(20)
    crew.close()
    later = new_crew(3, attempt=2, **plan).start(1, 2)
    later.until(lambda: all("Waiting for a peer" in later.output_of(rank) for rank in (1, 2)))
    assert [later.step(rank) for rank in (1, 2)] == [0, 0]
    later.start(0)
    later.finish()
    for rank in (1, 2):
        assert "Took over the model of rank" in later.output_file(rank).read_text()
    assert len(later.job.losses()) == 60


def test_with_an_object_store_one_that_comes_back_when_all_others_have_ended_ends_too(
    tmp_path: Path, new_crew: NewCrew
) -> None:
    crew = new_crew(3, steps=60, arguments={"seconds": 0.01}, checkpoint_url=f"file://{tmp_path}/store").start()
    crew.reach(10)
    crew.lose(2)
    assert [crew.wait(rank) for rank in (0, 1)] == [0, 0], crew.output()
    crew.again(2)
    assert crew.wait(2) == 0, crew.output()
