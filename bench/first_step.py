"""From the command typed to the first step on all ranks, warm file cache: `trainmaster run` against torchrun.

Aim: at most 0.8 of torchrun's time.
"""

import tempfile
from pathlib import Path

from bench import results
from bench.contestants import CONTESTANTS, running

ROUNDS = 7


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as scratch:
        for name in CONTESTANTS:
            _one(name, Path(scratch) / f"{name}-warm-up")
        for number in range(ROUNDS):
            # In turn who is first: whatever else the machine does should meet both alike.
            for name in CONTESTANTS if number % 2 else reversed(CONTESTANTS):
                seconds[name].append(_one(name, Path(scratch) / f"{name}-{number}"))
                print(f"round {number + 1}: {name} {seconds[name][-1]:.2f} s", flush=True)
    ratios = [ours / theirs for ours, theirs in zip(seconds["trainmaster"], seconds["torchrun"], strict=True)]
    figures = {"seconds": seconds, "ratios": ratios, "ratio": results.median(ratios), "worst": max(ratios)}
    results.save("first_step", figures)
    return f"first_step: {results.median(ratios):.2f}x torchrun's time"


def _one(name: str, folder: Path) -> float:
    with running(name, folder, steps=5) as run:
        return run.wait_for_step(1) - run.started
