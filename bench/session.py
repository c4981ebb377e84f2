"""Step time of a script whose steps are counted, and of one that reports them, against the same under bare torchrun.

Aims: at most 1.005 unchanged, at most 1.01 with `session.report` after each step. All train in turn on the same two
cores; the figure of a run is the median step of rank 0 after a warm-up. What they run is a step of some milliseconds:
the cost is of microseconds, whatever the step.
"""

import itertools
import tempfile
from pathlib import Path

from bench import results
from bench.contestants import LEVELS, running

ROUNDS = 5
STEPS = 1500
WARM_UP = 300
WIDTH = 1024
LEVEL = {"trainmaster": "level 1", "reporting": "level 2"}


def main() -> str:
    """Measure; gives the last line."""
    millis: dict[str, list[float]] = {name: [] for name in LEVELS}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            order = list(LEVELS) if number % 2 else list(reversed(LEVELS))
            for name in order:
                millis[name].append(_one(name, Path(scratch) / f"{name}-{number}"))
                print(f"round {number + 1}: {name} {millis[name][-1]:.3f} ms", flush=True)
    ratios = {
        level: [ours / bare for ours, bare in zip(millis[name], millis["torchrun"], strict=True)]
        for name, level in LEVEL.items()
    }
    figures = {level: results.median(each) for level, each in ratios.items()}
    results.save("session", {"milliseconds": millis, "ratios": ratios, "ratio": figures})
    return "session: " + ", ".join(f"{level} {ratio:.3f}x torchrun" for level, ratio in figures.items())


def _one(name: str, folder: Path) -> float:
    with running(name, folder, STEPS, WIDTH) as run:
        run.wait_for_step(STEPS, limit=240)
        times = [note.time for note in run.notes(0)][WARM_UP:]
    return results.median([(after - before) * 1000 for before, after in itertools.pairwise(times)])
