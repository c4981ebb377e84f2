"""What `spec.reproducible: true` costs: a step of AllReduce with virtual ranks against one without, two ranks."""

import tempfile
from pathlib import Path

from bench import jobs, results

ROUNDS = 5
STEPS = 120
BATCH = 64


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, list[float]] = {"plain": [], "reproducible": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for name in list(seconds) if number % 2 else list(reversed(seconds)):
                job = jobs.a_job({"type": "AllReduce"}, 2, BATCH, STEPS, reproducible=name == "reproducible")
                seconds[name].append(jobs.run(job, Path(scratch) / f"{name}-{number}").step_seconds)
                print(f"round {number + 1}: {name} {seconds[name][-1] * 1000:.2f} ms", flush=True)
    ratios = [ours / plain for ours, plain in zip(seconds["reproducible"], seconds["plain"], strict=True)]
    results.save("reproducible", {"seconds": seconds, "ratios": ratios, "ratio": results.median(ratios)})
    return f"reproducible: {results.median(ratios):.2f}x the step of plain AllReduce"
