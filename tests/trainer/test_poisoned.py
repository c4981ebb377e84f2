"""Numbers that are none: what they leave in the weights is found before it is kept, and nothing else is given up."""

from pathlib import Path

import pytest

from tests.trainer.crew import Crew
from tests.trainer.ranks import NewJob, Options

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
