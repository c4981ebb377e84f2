"""What an undisturbed job costs the API server: its pods and six writes more, and nothing per heartbeat."""

import pytest
from trainmaster.core.states.observed import NETWORK_POLICY

from tests.builders import a_job
from tests.platforms import clock
from tests.platforms.training import Plan
from tests.simulation.scenarios import undisturbed
from tests.simulation.world import World

# Calls that end in memory: orders go to agents, and reads change nothing.
MEMORY = ("orders", "read")


def writes(workers: int, seconds: float, start_seconds: float = 1.0, *kinds: str) -> list[str]:
    """Every write of a job that trains for so long, and whose last pod starts after so long."""
    world = World(1, a_job().with_workers(workers), plan=Plan(steps=int(seconds / 0.1)))
    world.server.kinds |= set(kinds)
    world.nodes.weather.start = (0.1, start_seconds)
    clock.run(world.run(undisturbed))
    assert world.watch.violations == []
    return [call for call in world.calls if call not in MEMORY]


def test_a_job_of_twenty_seconds_costs_its_pods_and_six_writes() -> None:
    pods = [f"create digits-worker-{index}-0" for index in range(4)]
    progress, end = ["status Running"], ["status Succeeded", "event"]
    assert sorted(writes(4, 20)) == sorted(
        ["service", *pods, "status Starting", "status Running", *progress, *end],
    )


def test_a_network_policy_is_made_once_before_all_pods_and_costs_nothing_else() -> None:
    made = writes(4, 20, 1.0, NETWORK_POLICY)
    assert made.index("networkpolicy") < min(made.index(f"create digits-worker-{index}-0") for index in range(4))
    assert sorted(made) == sorted([*writes(4, 20), "networkpolicy"])


@pytest.mark.parametrize(("workers", "seconds"), [(1, 5), (2, 60), (4, 300), (8, 20)])
def test_longer_jobs_cost_a_look_at_their_progress_every_ten_seconds(workers: int, seconds: float) -> None:
    assert len(writes(workers, seconds)) == workers + 5 + int(seconds / 10 - 0.1)


@pytest.mark.parametrize("start_seconds", [20, 225, 300])
@pytest.mark.parametrize("workers", [3, 20, 100])
def test_a_slow_start_costs_its_pods_and_six_writes(workers: int, start_seconds: float) -> None:
    made = writes(workers, 2, start_seconds)
    beginning = made[: made.index("status Running") + 1]
    pods = sum(call.startswith("create ") for call in beginning)
    assert pods == workers
    assert len(beginning) <= workers + 6, [call for call in beginning if not call.startswith("create ")]
