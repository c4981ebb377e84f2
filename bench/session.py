"""Step time of a script whose steps are counted, reported, or kept, against the same under bare torchrun.

Aims: at most 1.005 unchanged, 1.01 with `session.report` after each step, 1.03 with `session.state` as well. All train
in turn on the same two cores, for a few seconds each, as what else the machine does changes within a minute; the figure
of a run is the lower quartile of rank 0's steps after a warm-up. On a machine that does other things even these ratios
say little. So the cost of a step is measured besides, in time of the processor, which does not depend on what the step
itself takes (`scripts/session_cost.py`).
"""

import itertools
import os
import signal
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench import results
from bench.contestants import LEVELS, RANKS, WITH_STATE, Run, running
from bench.ranks import run_script

ROUNDS = 9
KILLS = 3
BEFORE = 50  # steps before the kill
STEPS = 200
WARM_UP = 50
WIDTH, BATCH = 1024, 1536  # a step of some 15 milliseconds
LEVEL = {"trainmaster": "level 1", "reporting": "level 2", "keeping": "level 3"}


def main() -> str:
    """Measure; gives the last line."""
    millis = results.interleaved(LEVELS, ROUNDS, _one)
    ratios = {
        level: [ours / bare for ours, bare in zip(millis[name], millis["torchrun"], strict=True)]
        for name, level in LEVEL.items()
    }
    figures = {level: results.median(each) for level, each in ratios.items()}
    cost = run_script("session_cost.py")
    for name, every in (("snapshot_after_each", 1), ("without_snapshots", 0)):
        cost[name] = run_script("session_cost.py", every)["kept"]
    kills = _kills()
    measured = {"microseconds": cost, "milliseconds": millis, "ratios": ratios, "ratio": figures, "kills": kills}
    results.save("session", measured)
    said = ", ".join(f"{level} {ratio:.3f}x torchrun" for level, ratio in figures.items())
    back = f"back {kills['times_sooner']:.0f} times sooner, {max(kills['steps_lost']['keeping'])} steps lost"
    return f"session: {said}; {_costs(cost)} microseconds of the processor a step; {back}"


def _costs(cost: dict[str, float]) -> str:
    return ", ".join(str(cost[name]) for name in ("counted", "reported", "without_snapshots", "snapshot_after_each"))


def _one(name: str, folder: Path) -> float:
    with running(name, folder, STEPS, WIDTH, BATCH) as run:
        run.wait_for_step(STEPS, limit=240)
        times = [note.time for note in run.notes(0)][WARM_UP:]
    return quantiles([(after - before) * 1000 for before, after in itertools.pairwise(times)], n=4)[0]


def _kills() -> dict[str, Any]:
    """Kill a rank of each, in turn. Return seconds and steps that were lost."""
    seconds: dict[str, list[float | None]] = {name: [] for name in WITH_STATE}
    lost: dict[str, list[int]] = {name: [] for name in WITH_STATE}
    with tempfile.TemporaryDirectory() as scratch:
        for name, number in itertools.product(WITH_STATE, range(KILLS)):
            with running(name, Path(scratch) / f"{name}-{number}", 1_000_000, WIDTH, BATCH) as run:
                took, steps = _killed(run)
            print(f"kill {number + 1}: {name} back after {took} s, {steps} steps lost", flush=True)
            seconds[name].append(took)
            lost[name] += [] if steps is None else [steps]
    theirs, ours = ([one for one in seconds[name] if one is not None] for name in ("saving", "keeping"))
    sooner = results.median(theirs) / results.median(ours) if theirs and ours else float("nan")
    return {"seconds": seconds, "steps_lost": lost, "times_sooner": sooner}


def _killed(run: Run) -> tuple[float | None, int | None]:
    run.wait_for_step(BEFORE)
    before = run.pids()
    killed = time.time()
    os.kill(run.notes(1)[-1].pid, signal.SIGKILL)
    try:
        took = run.wait_for_step(1, not_by=before, limit=60) - killed
    except TimeoutError:
        return None, None
    notes = [run.notes(rank) for rank in range(RANKS)]
    reached = min(max(note.step for note in each if note.pid in before) for each in notes)
    first = min(note.step for note in notes[0] if note.pid not in before)
    return took, reached - (first - 1)
