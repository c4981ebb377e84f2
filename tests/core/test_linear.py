"""A decision costs in proportion to the size of the group: the calls that it makes are counted, no clock is read."""

import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import pytest
from trainmaster.api.job import TrainingJob
from trainmaster.core.decide import decide
from trainmaster.core.regime.choice import look
from trainmaster.core.states.actions import GiveOrders
from trainmaster.core.states.observed import Observed, Obstacle, Replica
from trainmaster.intake import Intake, Speaker
from trainmaster.wire.messages import Orders

from tests.builders import NOON, a_heartbeat, a_job, a_replica, deleting, pending, running, saying

SMALL, LARGE = 100, 200
# What is linear makes at most twice the calls for a group of twice the size; what is quadratic four times as many.
MOST_TIMES = 2.2
SERVED = frozenset({"Service"})
NOW = NOON + timedelta(seconds=20)

World = tuple[TrainingJob, Observed]


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Return how often each Python function was entered while `work` ran; comparisons of dataclasses are such."""
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


def waiting(size: int, every: int = 1) -> tuple[Replica, ...]:
    return tuple(saying(a_replica(index), a_heartbeat()) for index in range(0, size, every))


def gathering(size: int) -> World:
    return a_job().with_workers(size).at("Pending").build(), Observed(waiting(size)[:-1], SERVED)


def starting(size: int) -> World:
    return a_job().with_workers(size).at("Starting").build(), Observed(waiting(size), SERVED)


def training(size: int) -> World:
    found = look(*starting(size), NOW).regime.roster
    assert found is not None
    beat = running(a_heartbeat(), found, step=5)
    replicas = tuple(saying(a_replica(index), beat) for index in range(size))
    return a_job().with_workers(size).at("Running", runningTime=NOON.isoformat()).build(), Observed(replicas, SERVED)


def half_are_lost(size: int) -> World:
    job, seen = training(size)
    return job, Observed(tuple(deleting(one) if one.index % 2 else one for one in seen.replicas), SERVED)


def none_starts(size: int) -> World:
    replicas = tuple(pending(a_replica(index), "ImagePullBackOff") for index in range(size))
    return a_job().with_workers(size).at("Pending").build(), Observed(replicas, SERVED)


def none_finds_a_place(size: int) -> World:
    until = (NOW + timedelta(hours=1)).isoformat()
    job = a_job().with_workers(size).at("Pending", avoidedNodes=[{"node": "node-1", "reason": "x", "until": until}])
    replicas = tuple(pending(a_replica(index), "Unschedulable", "no affinity", 0.0) for index in range(size))
    return job.build(), Observed(replicas, SERVED)


def every_name_is_taken(size: int) -> World:
    refused = tuple(Obstacle("NameTaken", "x", NOON.timestamp(), a_replica(index).name) for index in range(size))
    return a_job().with_workers(size).at("Pending").build(), Observed((), SERVED, refused)


def those_who_were_absent_are_back(size: int) -> World:
    absent = [f"worker-{index}" for index in range(1, size, 2)]
    job = a_job().with_workers(size).where(elasticity={"minReplicas": 1, "maxReplicas": size})
    return job.at("Pending", absent=absent).build(), Observed(waiting(size), SERVED)


def members_are_lost_one_by_one(size: int) -> World:
    starts = {f"worker-{index}": 0 for index in range(size)}
    job = a_job().where(strategy={"type": "Gossip"}).with_workers(size).at("Running", starts=starts).build()
    found = tuple(deleting(one) if one.index % 2 else one for one in waiting(size))
    return job, Observed(found, SERVED)


WORLDS = [
    gathering,
    starting,
    training,
    half_are_lost,
    none_starts,
    none_finds_a_place,
    every_name_is_taken,
    those_who_were_absent_are_back,
    members_are_lost_one_by_one,
]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_a_decision_is_linear_in_the_size_of_the_group(world: Callable[[int], World]) -> None:
    decide(*world(SMALL), NOW)  # whatever is computed once for all is not counted
    small, large = (calls_of(partial(decide, *world(size), NOW)) for size in (SMALL, LARGE))
    grown = [(name, small[name], count) for name, count in large.items() if count > MOST_TIMES * small[name] + 20]
    assert (large.total() < MOST_TIMES * small.total(), grown) == (True, [])


def test_the_roster_is_computed_once_in_a_decision() -> None:
    job, seen = training(SMALL)
    assert calls_of(lambda: decide(job, seen, NOW))["_member"] == SMALL


def given(size: int) -> tuple[Intake, tuple[tuple[str, Orders], ...]]:
    """The intake of that many agents, and their orders."""
    (action,) = (one for one in decide(*training(size), NOW).actions if isinstance(one, GiveOrders))
    return Intake(_nobody, lambda _: None), action.orders


def test_orders_are_encoded_once_for_all_agents_and_compared_by_their_version() -> None:
    counted: dict[int, Counter[str]] = {}
    for size in (SMALL, LARGE):
        intake, orders = given(size)
        assert len(orders) == size

        def give(intake: Intake = intake, orders: tuple[tuple[str, Orders], ...] = orders) -> None:
            for uid, one in orders:
                intake.give_orders(uid, one)

        give()
        intake._newest = None  # as at the next look, whose orders are equal, and other objects
        counted[size] = calls_of(give)
        assert counted[size]["encode"] == 1
        assert not [name for name in counted[size] if name.endswith("__eq__")]
    assert counted[LARGE].total() < MOST_TIMES * counted[SMALL].total()


async def _nobody(_token: str) -> Speaker:
    raise AssertionError("no agent asks here")
