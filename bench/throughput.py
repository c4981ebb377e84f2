"""Samples per second of 1, 2 and 4 workers, each with a share of 16 samples: with and without a straggler.

A step sleeps 0.1 s, so that cores play little part; the straggler, the last worker, sleeps 4 times as long. Without it
all should grow with the workers; with it the synchronous ones go at its pace, a quarter, and the asynchronous ones lose
three quarters of one worker. The figure is AllReduce's and ParameterServer's loss to the straggler among 4.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import independent, results

SHARE = 16
PACE = 0.1
SLOW = 4
MOST = 4
SECONDS = 5.0  # of steps, about
STRATEGIES: dict[str, dict[str, Any]] = {
    "AllReduce": {},
    "LocalSGD": {},
    "ParameterServer": {"parameterServers": {"replicas": 1}},
    "Gossip": {},
}
SYNCHRONOUS = ("AllReduce", "LocalSGD")


class Run(NamedTuple):
    """One job. `kind` is even or straggler."""

    strategy: str
    kind: str
    workers: int

    @property
    def paces(self) -> list[float]:
        """Seconds of a step, by rank."""
        return [PACE] * (self.workers - 1) + [PACE * (SLOW if self.kind == "straggler" else 1)]

    @property
    def theory(self) -> float:
        """Samples per second, where nothing but the steps takes time."""
        if self.strategy in SYNCHRONOUS:
            return SHARE * self.workers / max(self.paces)
        return sum(SHARE / pace for pace in self.paces)


def main() -> str:
    """Measure; gives the last line."""
    found: dict[str, dict[str, dict[int, float]]] = {"even": {}, "straggler": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for run in _runs():
            speed = _samples_per_second(Path(scratch) / "-".join(map(str, run)), run)
            found[run.kind].setdefault(run.strategy, {})[run.workers] = speed
            print(
                f"{run.strategy}, {run.workers} workers, {run.kind}: {speed:.0f} of {run.theory:.0f} samples/s",
                flush=True,
            )
    kept = {name: found["straggler"][name][MOST] / found["even"][name][MOST] for name in STRATEGIES}
    results.save("throughput", {**found, "kept": kept, "ideal": {"each": SHARE / PACE, "slow": SHARE / PACE / SLOW}})
    told = ", ".join(f"{name} {share:.2f}" for name, share in kept.items())
    return f"throughput: with one of {MOST} workers {SLOW} times slower there remain {told} of the samples/s"


def _runs() -> Iterator[Run]:
    for strategy in STRATEGIES:
        first = 2 if strategy == "Gossip" else 1  # alone there is nobody to average with
        yield from (Run(strategy, "even", workers) for workers in (1, 2, MOST) if workers >= first)
        yield from (Run(strategy, "straggler", workers) for workers in (2, MOST))


def _samples_per_second(folder: Path, run: Run) -> float:
    batch = SHARE * run.workers
    steps = max(10, round(SECONDS * run.theory / batch))
    spec: dict[str, Any] = {
        "strategy": {"type": run.strategy},
        "training": independent.training(steps, batch, width=32, paces=run.paces),
        "workers": {"replicas": run.workers},
        "checkpoint": {"everySteps": steps},
        **STRATEGIES[run.strategy],
    }
    return batch * independent.steps_per_second(folder, spec)
