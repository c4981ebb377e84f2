"""Members that make their models each for itself, and one of them another one: all is told, and nothing is mixed."""

import pytest

from tests.trainer.crew import NewCrew
from tests.trainer.ranks import Options

LONG: Options = {"steps": 1000, "checkpoint_every": 1000}
WIDER: Options = {"arguments": {"width": 2}}
TURNED: Options = {"task": "small_tasks:Turned"}


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (WIDER, "0.bias is float32[8] there and float32[16] here"),
        (TURNED, "0.weight is float32[8, 3] there and float32[3, 8] here"),
    ],
    ids=["more numbers", "as many numbers"],
)
def test_a_worker_whose_model_is_not_its_servers_says_how_they_differ(
    new_crew: NewCrew, servers: int, other: Options, difference: str
) -> None:
    crew = new_crew(1, servers, **LONG).start(*range(1, 1 + servers))
    crew.job = crew.job.but(**other)
    crew.start(0)
    assert crew.wait(0) == 78, crew.output()
    assert difference in crew.output_file(0).read_text()


@pytest.mark.parametrize("other", [WIDER, TURNED], ids=["more numbers", "as many numbers"])
def test_a_peer_averages_with_none_that_has_another_model(new_crew: NewCrew, other: Options) -> None:
    crew = new_crew(2, arguments={"seconds": 0.01}, **LONG).start(0)
    crew.job = crew.job.but(**other)
    crew.start(1)
    crew.until(lambda: "makes one model at rank" in crew.output())
    teller = int("makes one model at rank" in crew.output_file(1).read_text())
    assert crew.wait(teller) == 78, crew.output()
    assert "First difference: 0." in crew.output_file(teller).read_text()
