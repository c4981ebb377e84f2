"""Evaluation: how long four ranks take for validation samples of 5 ms each, against one rank. Samples sleep.

Interleaved. An evaluation's time is that from the line of its step to its own line in metrics.jsonl; its first one is
left out.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from bench import independent, results

ROUNDS = 3
RANKS = 4
SAMPLES, SECONDS = 128, 0.005
STEPS, EVERY = 60, 10


def main() -> str:
    """Measure; gives the last line."""
    seconds: dict[str, list[float]] = {"one": [], "four": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for name, ranks in (("one", 1), ("four", RANKS)):
                found = _seconds(Path(scratch) / f"{name}-{number}", ranks)
                seconds[name].append(found)
                print(f"round {number + 1}: {ranks} ranks {found * 1000:.0f} ms", flush=True)
    ratio = results.median([one / four for one, four in zip(seconds["one"], seconds["four"], strict=True)])
    results.save("evaluation", {"samples": SAMPLES, "seconds_of_a_sample": SECONDS, "seconds": seconds, "times": ratio})
    return f"evaluation: {RANKS} ranks take 1/{ratio:.2f} of the time of one"


def _seconds(folder: Path, ranks: int) -> float:
    training: dict[str, Any] = {
        **independent.training(STEPS, 32, samples=SAMPLES, seconds=SECONDS),
        "task": "bench.tasks:SlowValidation",
        "evaluateEverySteps": EVERY,
    }
    strategy = {"type": "AllReduce" if ranks > 1 else "OneDevice"}
    spec = {"strategy": strategy, "training": training, "workers": {"replicas": ranks}}
    independent.step_times(folder, {**spec, "checkpoint": {"everySteps": 10_000}})
    text = (folder / "work" / "checkpoints" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    ended = {line["step"]: line["time"] for line in lines if "loss" in line}
    taken = [line["time"] - ended[line["step"]] for line in lines if "evaluation" in line]
    return results.median(taken[1:])
