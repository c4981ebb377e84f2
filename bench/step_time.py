"""Steady step time of the same script under our agent against bare torchrun. Aim: at most 1.01.

Both train in turn on the same two cores; the figure of a run is the median step of rank 0 after a warm-up, the
ratio is that of each pair of neighbours in time. The warm-up is half of a run, some seven seconds: in the first of them
our agent prepares the next restart beside the ranks, which is what `restart` measures the worth of.
"""

import itertools
from pathlib import Path

from bench import results
from bench.contestants import CONTESTANTS, running

ROUNDS = 7
STEPS = 8000
WARM_UP = 4000
WIDTH = 1024


def main() -> str:
    """Measure; gives the last line."""
    millis = results.interleaved(CONTESTANTS, ROUNDS, _one)
    ratios = [ours / theirs for ours, theirs in zip(millis["trainmaster"], millis["torchrun"], strict=True)]
    figures = {"milliseconds": millis, "ratios": ratios, "ratio": results.median(ratios), "worst": max(ratios)}
    results.save("step_time", figures)
    return f"step_time: {results.median(ratios):.3f}x torchrun"


def _one(name: str, folder: Path) -> float:
    with running(name, folder, STEPS, WIDTH) as run:
        run.wait_for_step(STEPS)
        times = [note.time for note in run.notes(0)][WARM_UP:]
    return results.median([(after - before) * 1000 for before, after in itertools.pairwise(times)])
