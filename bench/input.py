"""Input: a step whose samples take 5 ms each, against a plain loop with torch's DataLoader and as many workers.

And with samples of 0.1 ms, where data workers have little to win: against the same job without them. Samples sleep, so
that few cores are enough. Interleaved; one device; the first tenth of the steps is left out, as processes start in it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import independent, results

ROUNDS = 3
BATCH = 32
WORKERS = (1, 2, 4)
SLOW, QUICK = 0.005, 0.0001
STEPS = {SLOW: 60, QUICK: 600}
ROOT = Path(__file__).parent.parent


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for name, found in _round(Path(scratch) / str(number)):
                seconds.setdefault(name, []).append(found)
                print(f"round {number + 1}: {name} {found * 1000:.2f} ms", flush=True)
    slow = {count: _ratio(seconds, f"slow {count}", f"loop {count}") for count in WORKERS}
    quick = {count: _ratio(seconds, f"quick {count}", "quick 0") for count in WORKERS}
    results.save("input", {"batch": BATCH, "seconds": seconds, "against_a_loop": slow, "against_none": quick})
    told = ", ".join(f"{ratio:.2f}x with {count}" for count, ratio in slow.items())
    return f"input: a step takes {told} of a plain loop's; quick samples {max(quick.values()):.2f}x at most"


def _round(folder: Path) -> list[tuple[str, float]]:
    """The seconds of a step of each, one after the other."""
    found: list[tuple[str, float]] = []
    for count in WORKERS:
        found += [(f"loop {count}", _loop(count)), (f"slow {count}", _ours(folder / f"slow-{count}", SLOW, count))]
    for count in (0, *WORKERS):
        found.append((f"quick {count}", _ours(folder / f"quick-{count}", QUICK, count)))
    return found


def _ratio(seconds: dict[str, list[float]], ours: str, other: str) -> float:
    return results.median([one / two for one, two in zip(seconds[ours], seconds[other], strict=True)])


def _per_step(times: list[float]) -> float:
    """The mean, as data workers bring several batches at a time."""
    first = len(times) // 10
    return (times[-1] - times[first]) / (len(times) - 1 - first)


def _ours(folder: Path, seconds: float, count: int) -> float:
    training: dict[str, Any] = {
        **independent.training(STEPS[seconds], BATCH, seconds=seconds),
        "task": "bench.tasks:SlowSamples",
        "dataWorkers": count,
    }
    spec = {"strategy": {"type": "OneDevice"}, "training": training, "checkpoint": {"everySteps": 10_000}}
    return _per_step(independent.step_times(folder, spec))


def _loop(count: int) -> float:
    options = {"workers": count, "seconds": SLOW, "steps": STEPS[SLOW], "batch": BATCH}
    words = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "bench.scripts.plain_input", *words]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    return _per_step(json.loads(output))
