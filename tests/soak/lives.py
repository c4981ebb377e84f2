"""What a seed stands for: a job of some strategy and sizes, and the faults that it suffers.

The jobs come from a table, so that lives of different seeds share the calm run which they are compared with.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

STEPS = 60
RANK, AGENT, WARM_PARENT, COMMAND = "rank", "agent", "warm parent", "command"

# Strategies, each with the workers that it can have: (replicas, gpus per replica).
SYNCHRONOUS: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
    ({"type": "OneDevice"}, [(1, 0)]),
    ({"type": "AllReduce"}, [(2, 0), (3, 0), (2, 2)]),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Ring"}}, [(3, 0)]),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Hierarchical"}}, [(2, 2)]),
    ({"type": "AllReduce", "allReduce": {"algorithm": "Driver"}}, [(2, 0)]),
    ({"type": "AllReduce", "compression": "INT8"}, [(2, 0)]),
    ({"type": "AllReduce", "compression": "PowerSGD"}, [(2, 0)]),
    ({"type": "AllReduce", "compression": "TopK"}, [(2, 0)]),
    ({"type": "Mirrored"}, [(1, 2)]),
    ({"type": "CentralStorage"}, [(1, 2)]),
    ({"type": "ParameterServer", "parameterServer": {"update": "Sync"}}, [(2, 0)]),
    ({"type": "LocalSGD", "localSGD": {"every": 4}}, [(2, 0)]),
    ({"type": "LocalSGD", "localSGD": {"every": 3, "outer": "Nesterov"}}, [(3, 0)]),
    ({"type": "FullySharded"}, [(2, 0), (3, 0)]),
    ({"type": "Pipeline"}, [(2, 0)]),
    ({"type": "Pipeline", "pipeline": {"schedule": "GPipe", "microBatches": 4}}, [(3, 0)]),
    ({"type": "Tensor"}, [(1, 2)]),
    ({"type": "Mesh", "mesh": {"data": 2, "tensor": 2}}, [(2, 2)]),
    ({"type": "Mesh", "mesh": {"pipeline": 2, "data": 2}}, [(2, 2)]),
]
"""Strategies whose model follows from the job alone: a disturbed life ends with the very bits of a calm one."""
ASYNCHRONOUS: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
    ({"type": "ParameterServer"}, [(2, 0), (3, 0)]),
    ({"type": "Gossip"}, [(2, 0), (3, 0)]),
]
SHARE_OF_ASYNCHRONOUS = 0.15


@dataclass(frozen=True)
class Fault:
    """One blow: `signal` to a process of the kind `victim`, `delay` seconds after the one before."""

    victim: str
    signal: str
    delay: float
    index: int = 0

    def __str__(self) -> str:
        return f"{self.signal} to {self.victim} {self.index} after {self.delay:.2f} s"


@dataclass(frozen=True)
class Life:
    """A job and what happens to it."""

    seed: int
    job: dict[str, Any]
    faults: tuple[Fault, ...]
    is_exact: bool

    @property
    def kind(self) -> str:
        """Return what the model follows from, as text: lives with equal text share a calm run."""
        spec = self.job["spec"]
        return json.dumps([spec[part] for part in ("strategy", "training", "workers")], sort_keys=True)


def life(seed: int) -> Life:
    """Make the life that `seed` stands for; the same one each time."""
    chance = random.Random(seed)
    is_exact = chance.random() >= SHARE_OF_ASYNCHRONOUS
    strategy, sizes = chance.choice(SYNCHRONOUS if is_exact else ASYNCHRONOUS)
    replicas, gpus = chance.choice(sizes)
    return Life(seed, _job(strategy, replicas, gpus, chance), _faults(strategy, chance), is_exact)


def _job(strategy: dict[str, Any], replicas: int, gpus: int, chance: random.Random) -> dict[str, Any]:
    workers: dict[str, Any] = {"replicas": replicas}
    if gpus:
        workers["gpus"] = gpus
    draws = chance.random() < 0.5 and strategy["type"] not in ("Pipeline", "Mesh")
    spec: dict[str, Any] = {
        "strategy": strategy,
        "training": {
            "task": "noisy:Noisy", "steps": STEPS, "globalBatchSize": 24, "seed": 1,
            "arguments": {"draws": draws, "adam": not draws},
        },
        "workers": workers,
        "checkpoint": {"everySteps": chance.choice([5, 20]), "keep": 2},
        "failurePolicy": {"maxRestarts": 30},
    }  # fmt: skip
    if strategy["type"] == "ParameterServer":
        spec["parameterServers"] = {"replicas": chance.choice([1, 2])}
    return {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": "soak"}, "spec": spec}


def _faults(strategy: dict[str, Any], chance: random.Random) -> tuple[Fault, ...]:
    faults = []
    for _ in range(chance.randint(1, 4)):
        victim = chance.choices([RANK, AGENT, WARM_PARENT, COMMAND], [5, 3, 1, 2])[0]
        signals = {RANK: ["KILL", "KILL", "STOP", "TERM"], AGENT: ["KILL"], WARM_PARENT: ["KILL", "STOP"]}
        signal = chance.choice(signals.get(victim, ["KILL", "TERM", "INT"]))
        faults.append(Fault(victim, signal, chance.uniform(0, 1.5), chance.randrange(4)))
    return tuple(faults)
