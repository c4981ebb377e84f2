"""Step time of a script whose steps are counted, reported, or kept, against the same under bare torchrun.

Aims: at most 1.005 unchanged, 1.01 with `session.report` after each step, 1.03 with `session.state` as well. All train
in turn on the same two cores; the figure of a run is the median step of rank 0 after a warm-up. On a machine that does
other things these ratios say little. So the cost of a step is measured besides, in time of the processor, which does
not depend on what the step itself takes (`scripts/session_cost.py`).
"""

import itertools
from pathlib import Path

from bench import results
from bench.contestants import LEVELS, running
from bench.ranks import run_script

ROUNDS = 3
STEPS = 1000
WARM_UP = 200
WIDTH = 1024
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
    results.save("session", {"microseconds": cost, "milliseconds": millis, "ratios": ratios, "ratio": figures})
    said = ", ".join(f"{level} {ratio:.3f}x torchrun" for level, ratio in figures.items())
    return f"session: {said}; {cost['counted']} and {cost['reported']} microseconds of the processor a step"


def _one(name: str, folder: Path) -> float:
    with running(name, folder, STEPS, WIDTH) as run:
        run.wait_for_step(STEPS, limit=240)
        times = [note.time for note in run.notes(0)][WARM_UP:]
    return results.median([(after - before) * 1000 for before, after in itertools.pairwise(times)])
