"""What ranks of a task can say of their progress: one suite of clauses for real processes and for those of simulations.

The ledger and the accounts are made of what ranks say, so a fake that says what no real process says hides faults. Real
members of ParameterServer keep these clauses in tests/trainer/strategies/parameter_server/test_telling.py, simulated
ones in tests/platforms/test_simulated.py; `impossible` is asked of everything that any of them says, and
of what the stage of the core's tests has its members say.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Protocol

from trainmaster.wire.messages import RankProgress

WORKERS = ("worker-0", "worker-1")
SERVERS = ("parameterServer-0", "parameterServer-1", "parameterServer-2")
EVERY = 20  # steps between two checkpoints


def impossible(ranks: Iterable[RankProgress]) -> str:
    """Return what no rank of a task says, in a sentence; empty where all of it can be."""
    for rank in ranks:
        if rank.resumed_step is None and (rank.phase != "load" or rank.step):
            return f"{rank}: a rank that has not said from where it goes on loads, and stands at step 0"
        if rank.resumed_step is not None and rank.step < rank.resumed_step:
            return f"{rank}: a rank stands before the step that it went on from"
    return ""


class Members(Protocol):
    """Two workers and three parameter servers, none of which has started yet."""

    async def start(self, *slots: str) -> None:
        """Start these members, or start them again after they have died."""

    async def kill(self, slot: str) -> None:
        """Kill the process of this member."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when it holds. Whatever is said meanwhile can be."""

    def told(self, slot: str) -> RankProgress:
        """Return what the page of this member says; also of one that is dead."""

    def saved(self) -> int:
        """Return the step of the newest checkpoint."""


Clause = Callable[[Members], Coroutine[None, None, None]]


def all_train(members: Members, *slots: str) -> bool:
    """Return whether these members, or all, are past loading."""
    return all(members.told(slot).phase == "train" for slot in slots or (*WORKERS, *SERVERS))


async def nobody_trains_before_the_last_server_is_there(members: Members) -> None:
    await members.start(*WORKERS, *SERVERS[:2])
    assert {members.told(slot).phase for slot in (*WORKERS, *SERVERS)} == {"load"}
    await members.start(SERVERS[2])
    await members.until(lambda: all_train(members))
    assert {members.told(slot).resumed_step for slot in (*WORKERS, *SERVERS)} == {0}
    await members.until(lambda: all(members.told(slot).step > 0 for slot in (*WORKERS, *SERVERS)))


async def a_server_that_comes_back_goes_on_from_its_copy(members: Members) -> None:
    await members.start(*WORKERS, *SERVERS)
    await members.until(lambda: members.told(SERVERS[1]).step > EVERY)
    await members.kill(SERVERS[1])
    reached = members.told(SERVERS[1]).step
    await members.start(SERVERS[1])
    assert members.told(SERVERS[1]) == RankProgress(members.told(SERVERS[1]).rank, 0, "load")
    await members.until(lambda: all_train(members))
    assert (members.told(SERVERS[1]).resumed_step or 0) >= reached
    assert {members.told(slot).resumed_step for slot in (*WORKERS, SERVERS[0], SERVERS[2])} == {0}


async def who_loses_a_server_with_its_copy_says_from_where_it_goes_on(members: Members) -> None:
    await members.start(*WORKERS, *SERVERS)
    # Neither at the checkpoint nor so near to the next one that this is written after the kill.
    await members.until(
        lambda: members.saved() >= EVERY and 2 < members.told(SERVERS[1]).step - members.saved() < EVERY // 2
    )
    for slot in SERVERS[1:]:
        await members.kill(slot)
    reached = members.told(SERVERS[1]).step
    await members.start(*SERVERS[1:])
    await members.until(lambda: all(members.told(slot).resumed_step for slot in (*WORKERS, *SERVERS)))
    (resumed,) = {members.told(slot).resumed_step for slot in (*WORKERS, *SERVERS)}
    assert resumed is not None
    assert resumed % EVERY == 0, "a checkpoint's"
    assert EVERY <= resumed < reached
    await members.until(lambda: all_train(members))


async def a_worker_that_comes_back_goes_on_where_the_others_are(members: Members) -> None:
    await members.start(*WORKERS, *SERVERS)
    await members.until(lambda: members.told(WORKERS[1]).step > EVERY)
    await members.kill(WORKERS[1])
    reached = members.told(WORKERS[1]).step
    await members.start(WORKERS[1])
    await members.until(lambda: all_train(members))
    assert (members.told(WORKERS[1]).resumed_step or 0) >= reached
    assert {members.told(slot).resumed_step for slot in (WORKERS[0], *SERVERS)} == {0}


CLAUSES: tuple[Clause, ...] = (
    nobody_trains_before_the_last_server_is_there,
    a_server_that_comes_back_goes_on_from_its_copy,
    who_loses_a_server_with_its_copy_says_from_where_it_goes_on,
    a_worker_that_comes_back_goes_on_where_the_others_are,
)
