"""What ParameterServer cannot train, or not together, ends with 78 and says why: options, tasks, datasets."""

import re

import pytest

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import NewJob, Options


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy_options": {"speed": 9}}, "spec.strategy.parameterServer.speed: ParameterServer has no such option"),
        ({"strategy_options": {"update": "Sometimes"}}, "is not one of Async, Sync"),
        ({"task": "small_tasks:Nothing"}, "spec.training.task"),
        (
            {"task": "odd_tasks:WithExtraState"},
            "keeps 1._extra_state (get_extra_state), which ParameterServer does not",
        ),
        ({"task": "odd_tasks:WithSparseOptimizer"}, "its optimizer is SparseAdam, which takes sparse gradients only"),
    ],
)
def test_what_cannot_work_ends_with_78_and_names_the_field(new_crew: NewCrew, changes: Options, message: str) -> None:
    crew = new_crew(1, 1, **changes).start()
    assert [crew.wait(0), crew.wait(1)] == [78, 78]
    assert message in crew.output_file(0).read_text()
    assert message in crew.output_file(1).read_text()


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("update", ["Sync", "Async"])
def test_workers_with_datasets_of_different_lengths_are_a_configuration_error(
    new_crew: NewCrew, servers: int, update: str
) -> None:
    """Each would take samples in an order of its own."""
    plan: Options = {"task": "late_tasks:Arriving", "arguments": {"samples": 100, "for_each_rank": 3, "seconds": 0.05}}
    crew = new_crew(2, servers, steps=400, strategy_options={"update": update}, **plan).start()
    words = "its dataset() has 100 samples on rank 0 and 103 on rank 1"
    crew.until(lambda: words in crew.output())
    (later,) = [rank for rank in (0, 1) if words in crew.output_file(rank).read_text()]
    assert crew.wait(later) == 78


def test_a_dataset_of_another_length_than_before_is_one_too(new_crew: NewCrew) -> None:
    job = new_crew(1, 2, task="small_tasks:Counted", arguments={"samples": 100}, steps=2).start().finish()
    assert job.manifest(2)["cursor"]["dataset"] == 100
    crew = new_crew(1, 2, attempt=2, job=job.but(steps=4, arguments={"samples": 90})).start()
    assert crew.wait(0) == 78
    assert "its dataset() has 90 samples now, and step 2 of this job was reached with 100" in crew.output()


@pytest.mark.parametrize("servers", [1, 2])
def test_so_is_one_that_has_grown_when_a_worker_or_server_0_comes_back(new_crew: NewCrew, servers: int) -> None:
    """Server 0 has forgotten what it was told, or has it from its copy: the workers that are there tell it again."""
    plan: Options = {"task": "late_tasks:Arriving", "arguments": {"samples": 100, "seconds": 0.05}}
    crew = new_crew(2, servers, steps=400, **plan).start()
    crew.reach(5)
    crew.kill(2)
    crew.again(2)
    crew.reach(crew.step(0) + 5)
    crew.job = crew.job.but(arguments={**plan["arguments"], "samples": 90})
    crew.kill(1)
    crew.again(1)
    assert crew.wait(1) == 78
    assert re.search(
        r"its dataset\(\) has (90 samples now|100 samples on rank 0 and 90)", crew.output_file(1).read_text()
    )


def test_more_servers_than_tensors_are_refused(new_crew: NewCrew) -> None:
    crew = new_crew(1, 5).start()
    assert crew.wait(0) == 78
    assert "5 servers for a model of 4 parameter tensors" in crew.output()


def test_torchrun_cannot_start_it(new_job: NewJob) -> None:
    running = new_job(strategy="ParameterServer").start(1)
    assert running.wait() == [78]
    assert "use AllReduce there" in running.output()
