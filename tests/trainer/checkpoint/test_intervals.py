"""How often snapshots are taken, from what they and the steps take."""

from __future__ import annotations

import pytest
from trainmaster_trainer.checkpoint.intervals import FREE_SECONDS, cost_of, interval


@pytest.mark.parametrize(
    ("training", "snapshot", "of_task", "of_script"),
    [(0.02, 0.0004, 1, 1), (0.001, 0.0004, 1, 14), (0.001, 0.0006, 20, 20), (0.1, 0.002, 1, 1), (0.01, 0.1, 334, 334)],
)
def test_snapshots_cost_3_percent_or_next_to_nothing(
    training: float, snapshot: float, of_task: int, of_script: int
) -> None:
    """For a script that is no exception: whoever brings one compares it with the bare one, however short its steps."""
    assert interval(1, training, snapshot, FREE_SECONDS) == of_task
    assert interval(1, training, snapshot, 0.0) == of_script


# Milliseconds of the processor, such as snapshots take one after the other while other programs come in between.
BUSY = [
    [0.702, 0.831, 0.512, 0.266, 0.264, 0.625, 0.301, 0.595, 0.258],
    [0.793, 0.310, 0.814, 0.642, 0.509, 0.788, 0.590, 0.505, 0.298, 0.312, 0.301],
    [0.299, 0.312, 0.301, 0.640, 0.655, 0.307, 0.588, 0.602, 0.631],
]


@pytest.mark.parametrize("milliseconds", BUSY)
def test_a_busy_moment_is_no_reason_for_fewer_snapshots(milliseconds: list[float]) -> None:
    """Of these more than half took more than 3 % of a step's time, and none more than 6 %."""
    cost = cost_of(one / 1000 for one in milliseconds)
    assert cost == cost_of(one / 1000 for one in reversed(milliseconds))
    assert interval(1, 0.0145, cost, 0.0) == 1


def test_what_a_snapshot_really_costs_counts() -> None:
    assert interval(1, 0.0145, cost_of([0.0006, 0.0007, 0.0005, 0.0009, 0.0006]), 0.0) == 2
    assert cost_of([0.01]) == 0.01


def test_an_interval_of_snapshots_does_not_tremble() -> None:
    """What takes nearly twice as long changes nothing, nor what takes a little less than half as long."""
    assert [interval(10, 0.01, 0.003 * factor, 0.0) for factor in (0.3, 0.6, 1, 1.8, 2)] == [5, 10, 10, 10, 20]
