"""State the condition `Straggling`: a rank is so slow that the others wait for it.

Each rank reports the median time per step that it works itself (`RankProgress.busy_seconds`), without waiting for
peers: in a synchronous group all steps take equally long, and only this tells which rank is slow. A rank is named when
it works SLOW times as long as the median rank, and until it is below WELL times: two bounds and a least length of time
for each statement, so that nothing flaps. The rank stands in the condition's reason, which is the only memory.

Of a script's rank it is what the thread that takes the steps computes, and a rank may also wait for a device or its
input. So one is named only if it hardly waits at all: nobody else can be whom the others wait for.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

from trainmaster.api.job_states import Phase
from trainmaster.api.status import Condition
from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts, Statement

STRAGGLING = "Straggling"
SLOW, WELL = 1.5, 1.2
LEAST_SECONDS = 0.005  # per step; below that it is noise, whatever the ratio
LEAST_SHARE = 0.7  # of a step, that a script's rank computes if the others wait for it
SLOW_INPUT = 0.3  # of its time in which the slow rank waits for its samples
LEAST_STEPS = 20  # steps of a try before it is judged: caches are cold and kernels are chosen
LEAST_WORK_SECONDS = 10  # of the slow rank in the try: another program may have taken its core for a moment
DWELL_SECONDS = 60  # a statement is kept at least for so long
_REASON = re.compile(r"Rank(\d{1,9})IsSlow")


@dataclass(frozen=True)
class RankPace:
    """Hold how many seconds one rank works for a step."""

    rank: int
    replica: str
    node: str
    seconds: float
    steps: int
    waits: bool = False  # it may be held up itself
    data_share: float = 0.0  # of its time, in which it waits for its samples


def statement(facts: Facts, phase: Phase) -> Statement | None:
    """Return the condition's type, whether it holds, reason and message; None: no rank is slow, and none was before."""
    before = next((c for c in facts.status.conditions if c.type == STRAGGLING), None)
    age = (facts.now - before.last_transition_time).total_seconds() if before else math.inf
    is_fresh = 0 <= age < DWELL_SECONDS
    found = _slow(facts, is_fresh) if phase == Phase.RUNNING else None
    if found:
        pace, usual = found
        who = f"{pace.replica} rank {pace.rank}" + (f" on {pace.node}" if pace.node else "")
        told = f"{who} works {pace.seconds:.3g} s for a step, the median rank {usual:.3g} s: the others wait for it."
        if pace.data_share > SLOW_INPUT:
            told += f" Its input is slow: it waits {pace.data_share:.0%} of its time for its samples."
        return STRAGGLING, True, f"Rank{pace.rank}IsSlow", told
    if before is None:
        return None
    if before.status == "True" and phase == Phase.RUNNING and is_fresh:
        return STRAGGLING, True, before.reason, before.message
    return STRAGGLING, False, "NoRankIsSlow", "All ranks work about equally long for a step."


def named(conditions: Iterable[Condition]) -> int | None:
    """Return the rank that a job's conditions name as slow; None where they name none."""
    told = next((one.reason for one in conditions if (one.type, one.status) == (STRAGGLING, "True")), "")
    match = _REASON.fullmatch(told)
    return int(match[1]) if match else None


def _slow(facts: Facts, is_fresh: bool) -> tuple[RankPace, float] | None:
    """Return the rank to name, and the seconds that the median rank works; None where no rank is slow."""
    paces = _paces(facts)
    if len(paces) < 2:  # noqa: PLR2004  somebody to wait for it
        return None
    usual = median_low(pace.seconds for pace in paces)
    named_before = named(facts.status.conditions)
    still = next((pace for pace in paces if pace.rank == named_before), None)
    slowest = max(paces, key=lambda pace: (pace.seconds, -pace.rank))
    # Who is named stays so down to the lower bound; what was stated just now is not replaced by another name.
    for pace, times in ((still, WELL), (None if is_fresh else slowest, SLOW)):
        if pace is None or pace.waits or pace.steps * pace.seconds < LEAST_WORK_SECONDS:
            continue
        if pace.seconds > times * usual and pace.seconds - usual > LEAST_SECONDS:
            return pace, usual
    return None


def _paces(facts: Facts) -> list[RankPace]:
    """Return the pace of each rank that has trained long enough to be judged."""
    script = bool(facts.job.spec.training.command)
    return [
        RankPace(
            rank=figures.count(rank.rank),
            replica=slot.key,
            node=slot.replica.node if slot.replica else "",
            seconds=rank.busy_seconds,
            steps=rank.step - (rank.resumed_step or 0),
            data_share=rank.data_share or 0.0,
            waits=script and rank.busy_seconds < LEAST_SHARE * (rank.step_seconds or 0.0),
        )
        for slot in facts.slots
        if slot.heartbeat and slot.heartbeat.attempt == facts.status.attempt
        for rank in slot.heartbeat.ranks
        if rank.busy_seconds is not None
        and math.isfinite(rank.busy_seconds)
        and rank.busy_seconds >= 0
        and rank.step - (rank.resumed_step or 0) >= LEAST_STEPS
    ]
