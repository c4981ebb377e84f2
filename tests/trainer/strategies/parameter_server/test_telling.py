"""Real members of ParameterServer say what the simulated ones say (tests/platforms/telling.py)."""

import asyncio
from collections.abc import Callable

import pytest
from trainmaster.wire.messages import RankProgress
from trainmaster_trainer.agent.status_collector import rank_progress
from trainmaster_trainer.checkpoint.layout import saved_steps

from tests.platforms.telling import CLAUSES, EVERY, SERVERS, WORKERS, Clause, impossible
from tests.trainer.crew import Crew, NewCrew

SLOTS = (*WORKERS, *SERVERS)


class RealMembers:
    """A crew of processes, whose pages are read as an agent reads them."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._started: set[str] = set()

    async def start(self, *slots: str) -> None:
        """Start processes; workers are there before the first step, or one would go on from where another is."""
        first = [SLOTS.index(slot) for slot in slots if slot not in self._started]
        workers = [rank for rank in first if rank < len(WORKERS)]
        if workers:  # a crew that is told no names starts all
            self._crew.start_and_wait(*workers)
        for rank in map(SLOTS.index, slots):
            if rank not in first:
                self._crew.again(rank)
            elif rank >= len(WORKERS):
                self._crew.start(rank)
        self._started |= {*slots}

    async def kill(self, slot: str) -> None:
        """Kill the process with SIGKILL."""
        self._crew.kill(SLOTS.index(slot))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Look at the pages again and again."""

        def looked() -> bool:
            pages = [self.told(slot) for slot in SLOTS]
            assert not impossible(pages), impossible(pages)
            return holds()

        self._crew.until(looked)

    def told(self, slot: str) -> RankProgress:
        """Return what a heartbeat would say of this page."""
        rank = SLOTS.index(slot)
        page = rank_progress({rank: self._crew.page(rank)}, {})[0]
        return RankProgress(page.rank, page.step, page.phase, resumed_step=page.resumed_step)

    def saved(self) -> int:
        """Return the newest step on the storage."""
        return max(saved_steps(self._crew.job.checkpoints()), default=0)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_real_members_keep_the_contract(clause: Clause, new_crew: NewCrew) -> None:
    counting = {"task": "small_tasks:Counting", "arguments": {"seconds": 0.02}, "global_batch_size": 16}
    crew = new_crew(2, 3, **counting, steps=10_000, checkpoint_every=EVERY)
    asyncio.run(clause(RealMembers(crew)))
