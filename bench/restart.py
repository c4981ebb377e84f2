"""SIGKILL of one rank to the first step of the next attempt on all ranks: torchrun against ours, in turn.

Aim: at least 40 times sooner. A torchrun that does not come back is counted, and its round is left out of the ratio.
"""

import os
import signal
import tempfile
import time
from pathlib import Path

from bench import results
from bench.contestants import CONTESTANTS, running

ROUNDS = 4
STEPS = 1_000_000  # until we end it
BEFORE = 50  # steps before the kill


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, list[float | None]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for name in CONTESTANTS:
                seconds[name].append(_one(name, Path(scratch) / f"{name}-{number}"))
                print(f"round {number + 1}: {name} {seconds[name][-1]}", flush=True)
    theirs, ours = seconds["torchrun"], seconds["trainmaster"]
    pairs = [(a, b) for a, b in zip(theirs, ours, strict=True) if a is not None and b is not None]
    if not pairs:
        return "restart: no round in which both came back"
    ratios = [a / b for a, b in pairs]
    figures = {
        "seconds": seconds,
        "ratios": ratios,
        "ratio": results.median(ratios),
        "worst": min(ratios),
        "torchrun_lost": theirs.count(None),
        "trainmaster_lost": ours.count(None),
    }
    results.save("restart", figures)
    return f"restart: {results.median(ratios):.1f}x torchrun"


def _one(name: str, folder: Path) -> float | None:
    with running(name, folder, STEPS) as run:
        run.wait_for_step(BEFORE)
        before = run.pids()
        victim = run.notes(1)[-1].pid
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        try:
            return run.wait_for_step(1, not_by=before, limit=60) - killed
        except TimeoutError:
            return None
