"""Messages between the stages of a pipeline: through memory where ranks share it, whatever the order they come in."""

import pytest

from tests.trainer.ranks import NewJob

NO_MEMORY = {"TRAINMASTER_SHARED_MEMORY": "off"}
MANY = 60  # far more than a lane has slots, and some too large for one


@pytest.mark.parametrize("world", [2, 3, 4])
def test_all_arrive_in_order_however_many_are_on_their_way(new_job: NewJob, world: int) -> None:
    answers = new_job().call(world, "messages_between:exchange", count=MANY)
    assert answers == [{"backend": "trainmaster-stages", "wrong": 0}] * world


def test_they_are_gloo_s_where_ranks_are_apart(new_job: NewJob) -> None:
    answers = new_job(variables=NO_MEMORY).call(2, "messages_between:exchange", count=MANY)
    assert [answer["wrong"] for answer in answers] == [0, 0]
    assert "trainmaster" not in answers[0]["backend"]


@pytest.mark.parametrize("world", [2, 4])
def test_calls_that_wait_for_each_message(new_job: NewJob, world: int) -> None:
    assert new_job().call(world, "messages_between:one_after_the_other") == [0] * world


def test_stages_that_are_no_neighbours(new_job: NewJob) -> None:
    assert new_job().call(3, "messages_between:far_apart") == [2.0, 1.0, 2.0]


@pytest.mark.parametrize("direction", ["send", "receive"])
def test_a_dead_stage_ends_the_wait(new_job: NewJob, direction: str) -> None:
    job = new_job().calling("messages_between:lose_a_stage", direction=direction)
    running = job.start(2)
    assert running.wait_for(1) == -9
    assert running.wait_for(0) == 0, running.output()
    assert "rank 1 of this group, which shares memory with this rank, has ended" in job.answer(0)


def test_nobody_gives_up_on_a_slow_peer_before_the_agent_does(new_job: NewJob) -> None:
    """The agent knows a rank that computes for an hour from one that hangs; torch's half an hour would end both."""
    for answer in new_job().call(4, "messages_between:patience"):
        assert answer == dict.fromkeys(answer, 24 * 3600.0)
        assert {"world", "links", "slots", "messages", "store", "pipeline", "tensor", "sharded", "data"} == set(answer)
