"""Tell on what the ranks wait: samples, one another, snapshots; and state the condition `Waiting` where it is much.

Each rank reports shares of its time of late. Of the wait for samples and for snapshots the rank counts that waits
longest. Of the exchange the one that waits shortest: the others may wait for that one, which `Straggling` is about.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.status import StepTime, Waiting
from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts, Statement
from trainmaster.wire.messages import RankProgress

WAITING = "Waiting"
TO_THE_END = "WaitedToTheEnd"  # reason of a job that is over, whose message is what was true until then
MUCH, LITTLE = 0.3, 0.2  # the condition begins above the one and ends below the other, so that it does not flap
LEAST_STEPS = 20  # of a try before it is judged: caches are cold, and the first batches are made while nobody trains
MOST_TIMES = 8  # ranks of which a status says where their seconds go
LEAST_STEP_SECONDS = 0.05  # below that an exchange takes longer than a step's work, and nobody would mind


@dataclass(frozen=True)
class _Kind:
    """Hold one thing that ranks wait for."""

    name: str  # in Waiting
    reason: str
    words: str
    share: Callable[[RankProgress], float | None]
    of: Callable[[Iterable[float]], float]  # which rank counts
    cure: Callable[[TrainingJob], str]


def _more_data_workers(job: TrainingJob) -> str:
    if job.spec.training.command:
        return "Let its input be made ahead, as by more num_workers of a DataLoader."
    count = job.spec.training.data_workers
    if count is None:
        return "Ask for more cores (spec.workers.cpu), which gives each rank more data workers, or set dataWorkers."
    cores = "with as many cores (spec.workers.cpu)"
    return f"Raise spec.training.dataWorkers above {count}, {cores}, or make samples quicker."


_LESS_EXCHANGE = (
    "Compute more between two exchanges (a larger globalBatchSize), send less (strategy.compression, LocalSGD), or use "
    "fewer workers; trainmaster advise predicts which pays."
)
_FEWER_SNAPSHOTS = "Raise spec.checkpoint.memoryEverySteps, or leave it out: then they are taken as often as is cheap."
_KINDS = (
    _Kind("data", "ForSamples", "for its samples", lambda rank: rank.data_share, max, _more_data_workers),
    _Kind(
        "exchange",
        "ForOtherRanks",
        "for the other ranks",
        lambda rank: rank.exchange_share,
        min,
        lambda _: _LESS_EXCHANGE,
    ),
    _Kind(
        "snapshots", "ForSnapshots", "for snapshots", lambda rank: rank.snapshot_share, max, lambda _: _FEWER_SNAPSHOTS
    ),
)


def waiting(ranks: Iterable[RankProgress]) -> Waiting | None:
    """Return on what the ranks wait, as shares of their time; None where none waits, or none says it."""
    told = list(ranks)
    shares = {kind.name: share for kind in _KINDS if (share := round(_share(kind, told), 2))}
    return Waiting(**shares) if shares else None


def step_times(ranks: Iterable[RankProgress]) -> tuple[StepTime, ...] | None:
    """Return where the seconds of a step go, on the ranks that work longest; None where none has told how long."""
    told = [rank for rank in ranks if rank.step_seconds is not None and 0 <= rank.step_seconds < math.inf]
    longest = sorted(told, key=lambda rank: -figures.seconds(rank.busy_seconds or 0.0))[:MOST_TIMES]
    times = []
    for rank in sorted(longest, key=lambda rank: rank.rank):
        seconds = rank.step_seconds or 0.0
        spent = {kind.name: seconds * _share(kind, [rank]) for kind in _KINDS}
        computing = max(0.0, seconds - sum(spent.values()))
        times.append(StepTime(rank=figures.count(rank.rank), computing=computing, **spent))
    return tuple(times) or None


def statement(facts: Facts, phase: Phase) -> Statement | None:
    """Return the condition's type, whether it holds, reason and message; None where no rank waits much, nor has."""
    before = next((one for one in facts.status.conditions if one.type == WAITING), None)
    holds = before.reason if before is not None and before.status == "True" else ""
    ranks = [rank for rank in facts.ranks if rank.step - (rank.resumed_step or 0) >= LEAST_STEPS]
    if phase == Phase.RUNNING and not ranks and before is not None:
        return WAITING, before.status == "True", before.reason, before.message
    if phase in TERMINAL and before is not None and (holds or before.reason == TO_THE_END):
        return WAITING, False, TO_THE_END, before.message
    quickest = min((rank.step_seconds or 0.0 for rank in ranks), default=0.0)
    for kind in _KINDS if phase == Phase.RUNNING else ():
        share = _share(kind, ranks)
        counts = kind.of is max or quickest >= LEAST_STEP_SECONDS
        if counts and share > (LITTLE if holds == kind.reason else MUCH):
            rank = max(ranks, key=lambda one, kind=kind: kind.share(one) or 0.0)  # type: ignore[misc]
            who = "Every rank" if kind.of is min else f"Rank {figures.count(rank.rank)}"
            message = f"{who} waits {share:.0%} of its time {kind.words}. {kind.cure(facts.job)}"
            return WAITING, True, kind.reason, message
    return (WAITING, False, "NotMuch", "No rank waits for more than a fifth of its time.") if before else None


def _share(kind: _Kind, ranks: list[RankProgress]) -> float:
    shares = [share for rank in ranks for share in [kind.share(rank)] if share is None or math.isfinite(share)]
    told = [min(1.0, max(0.0, share or 0.0)) for share in shares]
    return kind.of(told) if told else 0.0
