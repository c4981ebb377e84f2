"""A slow rank is named with its node, by what it works itself; nothing flaps, and nothing nonsensical is believed."""

import dataclasses
import itertools
from random import Random

import pytest
from trainmaster.api.status import Condition
from trainmaster.wire.messages import RankProgress

from tests.core.stage import Stage, a_running_group


def working(stage: Stage, *seconds: float | None, step: int = 100, wait: float = 10) -> Stage:
    """Each rank tells how long it works for a step; the operator looks a while later."""
    for name, replica in stage.replicas.items():
        assert replica.heartbeat
        (rank,) = replica.heartbeat.ranks
        rank = dataclasses.replace(rank, step=step, busy_seconds=seconds[replica.index])
        beat = dataclasses.replace(replica.heartbeat, ranks=(rank,))
        stage.replicas[name] = dataclasses.replace(replica, heartbeat=beat)
    return stage.wait(wait)


def condition(stage: Stage) -> Condition | None:
    """As it stands written."""
    return stage.condition("Straggling")


def told(stage: Stage) -> tuple[str, str]:
    """Whether it holds, and the reason."""
    return stage.told("Straggling")


def test_a_slow_rank_is_named_with_its_node() -> None:
    stage = working(a_running_group(workers=4), 0.1, 0.11, 0.31, 0.1)
    found = condition(stage)
    assert found
    assert (found.status, found.reason) == ("True", "Rank2IsSlow")
    assert found.message == (
        "worker-2 rank 2 on node-2 works 0.31 s for a step, the median rank 0.1 s: the others wait for it."
    )
    assert [event.reason for event in stage.events].count("Rank2IsSlow") == 1


def test_a_slow_input_is_said_to_be_what_is_slow() -> None:
    stage = a_running_group(workers=2)
    stage.say("worker-1", lambda beat: dataclasses.replace(beat, ranks=(RankProgress(1, 1, data_share=0.6),)))
    found = condition(working(stage, 0.1, 0.4))
    assert found
    assert found.message.endswith("Its input is slow: it waits 60% of its time for its samples.")


def test_of_two_ranks_the_slower_is_named() -> None:
    assert told(working(a_running_group(workers=2), 0.1, 0.2)) == ("True", "Rank1IsSlow")


def test_a_rank_of_a_script_is_named_only_if_it_hardly_waits_itself() -> None:
    """On a GPU, say: twice the work of the processor, in a step that waits for the device."""
    script = {"command": ["python", "train.py"]}
    waiting = working(a_running_group(workers=2, training=script), 0.1, 0.2)
    assert told(waiting) == ("", ""), "a step takes 0.5 s"
    assert told(working(a_running_group(workers=2, training=script), 0.1, 0.4)) == ("True", "Rank1IsSlow")


@pytest.mark.parametrize(
    "seconds",
    [
        (0.1, 0.1, 0.14),
        (0.0001, 0.0001, 0.004),  # many times, of nothing
        (0.1, None, None),
        (None, None, None),
        (float("nan"), float("inf"), 0.1),
        (-1.0, -5.0, 0.1),
    ],
)
def test_nobody_is_blamed_without_need(seconds: tuple[float | None, ...]) -> None:
    assert told(working(a_running_group(workers=3), *seconds)) == ("", "")


def test_the_first_steps_of_a_try_tell_nothing() -> None:
    assert told(working(a_running_group(workers=2), 0.1, 9.0, step=19)) == ("", "")


def test_a_job_of_seconds_raises_no_alarm() -> None:
    """On a laptop another program takes one rank's core for a moment."""
    assert told(working(a_running_group(workers=2), 0.01, 0.03, step=300)) == ("", "")
    assert told(working(a_running_group(workers=2), 0.01, 0.03, step=400)) == ("True", "Rank1IsSlow")


def test_it_stands_until_the_rank_is_well_and_for_a_while() -> None:
    stage = working(a_running_group(workers=3), 0.1, 0.1, 0.2)
    assert told(working(stage, 0.1, 0.1, 0.1)) == ("True", "Rank2IsSlow"), "not for one better word"
    assert told(working(stage, 0.1, 0.1, 0.13, wait=100)) == ("True", "Rank2IsSlow"), "between the bounds"
    assert told(working(stage, 0.1, 0.1, 0.11)) == ("False", "NoRankIsSlow")
    assert told(working(stage, 0.1, 0.1, 0.2)) == ("False", "NoRankIsSlow"), "it was well a moment ago"
    assert told(working(stage, 0.1, 0.1, 0.2, wait=60)) == ("True", "Rank2IsSlow")


def test_who_is_named_stays_named_while_slow() -> None:
    stage = working(a_running_group(workers=4), 0.1, 0.1, 0.2, 0.1)
    assert told(working(stage, 0.1, 0.1, 0.2, 0.4, wait=100)) == ("True", "Rank2IsSlow")
    assert told(working(stage, 0.1, 0.1, 0.1, 0.4, wait=100)) == ("True", "Rank3IsSlow")


def test_noise_does_not_flap() -> None:
    random, stage, seen = Random(7), a_running_group(workers=4), []  # noqa: S311
    for _ in range(300):
        working(stage, 0.1, 0.1, 0.1, 0.15 * random.uniform(0.75, 1.25), wait=5)
        seen.append(told(stage)[0])
    changes = sum(1 for before, after in itertools.pairwise(seen) if before != after)
    assert changes <= 300 * 5 / 60, "no statement is shorter than a minute"


def test_the_end_of_the_job_ends_it() -> None:
    stage = working(a_running_group(workers=2), 0.1, 0.9).finish()
    assert told(stage) == ("False", "NoRankIsSlow")


def test_a_reason_that_was_edited_by_hand_is_no_rank() -> None:
    stage = working(a_running_group(workers=2), 0.1, 0.9)
    edited = [dataclasses.replace(c, reason="Rank99999999999IsSlow") for c in stage.status.conditions]
    stage.job = stage.job.model_copy(update={"status": dataclasses.replace(stage.status, conditions=tuple(edited))})
    assert told(working(stage, 0.1, 0.9, wait=100)) == ("True", "Rank1IsSlow")
