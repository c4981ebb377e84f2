"""On what ranks wait, and when that is much: the condition names it with the cure, and does not flap."""

import dataclasses

import pytest
from trainmaster.api.status import StepTime, Waiting
from trainmaster.core.report.story import story

from tests.core.stage import Stage, a_running_group

Shares = dict[str, float | None]


def spending(stage: Stage, *shares: Shares, step: int = 100) -> Stage:
    """Each rank tells its shares; the operator looks a while later."""
    for name, replica in stage.replicas.items():
        assert replica.heartbeat
        (rank,) = replica.heartbeat.ranks
        rank = dataclasses.replace(rank, step=step, step_seconds=0.5, **shares[replica.index])  # type: ignore[arg-type]
        beat = dataclasses.replace(replica.heartbeat, ranks=(rank,))
        stage.replicas[name] = dataclasses.replace(replica, heartbeat=beat)
    return stage.wait(10)


def test_the_shares_of_a_step_s_time_are_in_the_status() -> None:
    reading: Shares = {"data_share": 0.714, "exchange_share": 0.05, "snapshot_share": 0.02}
    stage = spending(a_running_group(workers=2), reading, {"exchange_share": 0.75})
    assert stage.status.progress
    assert stage.status.progress.waiting == Waiting(data=0.71, exchange=0.05, snapshots=0.02)


def test_where_the_seconds_of_a_step_go_is_told_for_each_rank() -> None:
    reading: Shares = {"data_share": 0.7, "exchange_share": 0.04, "snapshot_share": 0.02}
    stage = spending(a_running_group(workers=2), reading, {"exchange_share": 0.8})
    assert stage.status.progress
    assert stage.status.progress.step_times == (
        StepTime(rank=0, computing=0.12, data=0.35, exchange=0.02, snapshots=0.01),
        StepTime(rank=1, computing=0.1, data=0.0, exchange=0.4, snapshots=0.0),
    )
    told = "\n".join(story(stage.status))
    assert (
        "A step of rank 0 takes 0.5 s: 0.12 s computing, 0.35 s waiting for samples, 0.02 s waiting for other" in told
    )


def test_of_many_ranks_those_are_told_that_work_longest() -> None:
    busy: list[Shares] = [{"busy_seconds": rank / 100} for rank in range(12)]
    stage = spending(a_running_group(workers=12), *busy)
    assert stage.status.progress
    assert [one.rank for one in stage.status.progress.step_times or ()] == [*range(4, 12)]


def test_of_a_script_no_seconds_are_told() -> None:
    stage = spending(a_running_group(workers=1, training={"command": ["a"], "steps": 1000}), {"busy_seconds": 0.1})
    assert stage.status.progress
    assert stage.status.progress.step_times is None


@pytest.mark.parametrize(
    ("training", "cure"),
    [
        ({"dataWorkers": 2}, "Raise spec.training.dataWorkers above 2"),
        ({}, "Ask for more cores (spec.workers.cpu)"),
    ],
)
def test_much_waiting_for_samples_is_a_condition_with_the_cure(training: dict[str, int], cure: str) -> None:
    stage = a_running_group(workers=2, training={"task": "a:B", "steps": 1000, "globalBatchSize": 8, **training})
    spending(stage, {"data_share": 0.1}, {"data_share": 0.71})
    found = stage.condition("Waiting")
    assert found
    assert (found.status, found.reason) == ("True", "ForSamples")
    assert found.message.startswith("Rank 1 waits 71% of its time for its samples. " + cure)
    assert found.message in "\n".join(story(stage.status))


def test_of_the_exchange_the_rank_counts_that_waits_least() -> None:
    stage = spending(a_running_group(workers=2), {"exchange_share": 0.9}, {"exchange_share": 0.1})
    assert stage.told("Waiting") == ("", ""), "the others wait for that one: Straggling"
    spending(stage, {"exchange_share": 0.9}, {"exchange_share": 0.5})
    assert stage.told("Waiting") == ("True", "ForOtherRanks")


def test_it_begins_late_and_does_not_flap() -> None:
    stage = spending(a_running_group(workers=1), {"data_share": 0.9}, step=19)
    assert stage.told("Waiting") == ("", "")
    for share, told in ((0.25, ("", "")), (0.31, ("True", "ForSamples")), (0.25, ("True", "ForSamples"))):
        assert spending(stage, {"data_share": share}).told("Waiting") == told
    assert spending(stage, {"data_share": 0.1}).told("Waiting") == ("False", "NotMuch")


@pytest.mark.parametrize(("share", "is_told"), [(0.9, True), (0.1, False)])
def test_what_was_waited_for_is_told_with_its_cure_after_the_end(share: float, is_told: bool) -> None:
    """Who looks at a job that is over would read that no rank waits."""
    stage = spending(spending(a_running_group(workers=1), {"data_share": 0.9}), {"data_share": share})
    stage.finish().settle().wait(10)
    assert stage.status.phase == "Succeeded"
    assert stage.told("Waiting") == ("False", "WaitedToTheEnd" if is_told else "NotMuch")
    assert ("Rank 0 waits 90% of its time for its samples. Ask" in "\n".join(story(stage.status))) is is_told


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -1.0, None])
def test_what_no_rank_can_mean_is_not_believed(share: float | None) -> None:
    stage = spending(a_running_group(workers=1), {"data_share": share, "exchange_share": share})
    assert stage.told("Waiting") == ("", "")
