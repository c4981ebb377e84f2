"""What a seed stands for: a job of some strategy and sizes, and the faults that it suffers.

The jobs come from a table, so that lives of different seeds share the calm run which they are compared with.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

STEPS = 60
RANK, AGENT, WARM_PARENT, COMMAND, CHILD = "rank", "agent", "warm parent", "command", "child of a rank"

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
SCRIPTS: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
    ({"type": "AllReduce"}, [(1, 0), (2, 0), (3, 0), (2, 2)])
]
"""Scripts save by themselves; who goes on from that ends with the very bits of a calm one, too."""
SHARE_OF_ASYNCHRONOUS, SHARE_OF_SCRIPTS = 0.12, 0.15

# Who is struck, by what: signals that are there twice come twice as often. A command, or an agent, that is stopped goes
# on after a while (the user has typed Ctrl-Z and fg, the machine has slept); who stops a rank never lets it go on.
# A child that is stopped goes on as well: before its first step, which may compile, a rank is given ten minutes.
SIGNALS: dict[str, tuple[int, list[str]]] = {
    RANK: (5, ["KILL", "KILL", "STOP", "TERM", "INT"]),
    AGENT: (3, ["KILL", "KILL", "STOP", "TERM", "INT"]),
    WARM_PARENT: (1, ["KILL", "STOP", "TERM", "INT"]),
    COMMAND: (3, ["KILL", "KILL", "STOP", "TERM", "INT"]),
    CHILD: (2, ["KILL", "KILL", "STOP", "TERM", "INT"]),
}
LONGEST_PAUSE = 6.0


@dataclass(frozen=True)
class Fault:
    """One blow: `signal` to a process of the kind `victim`, `delay` seconds after the one before.

    After `pause` seconds, if there are any, it goes on.
    """

    victim: str
    signal: str
    delay: float
    index: int = 0
    pause: float = 0.0

    def __str__(self) -> str:
        pause = f", for {self.pause:.2f} s" if self.pause else ""
        return f"{self.signal} to {self.victim} {self.index} after {self.delay:.2f} s{pause}"


@dataclass(frozen=True)
class Life:
    """A job and what happens to it."""

    seed: int
    job: dict[str, Any]
    faults: tuple[Fault, ...]
    is_exact: bool

    @property
    def is_script(self) -> bool:
        """Return whether the job brings its own training loop."""
        return "command" in self.job["spec"]["training"]

    @property
    def kind(self) -> str:
        """Return what the model follows from, as text: lives with equal text share a calm run."""
        spec = self.job["spec"]
        arguments = spec["training"].get("arguments", {})
        follows = {name: value for name, value in arguments.items() if name != "helper"}
        return json.dumps([spec["strategy"], spec["workers"], self.is_script, follows], sort_keys=True)


def life(seed: int) -> Life:
    """Make the life that `seed` stands for; the same one each time."""
    chance = random.Random(seed)
    lot = chance.random()
    is_script, is_asynchronous = lot < SHARE_OF_SCRIPTS, lot >= 1 - SHARE_OF_ASYNCHRONOUS
    strategy, sizes = chance.choice(SCRIPTS if is_script else ASYNCHRONOUS if is_asynchronous else SYNCHRONOUS)
    replicas, gpus = chance.choice(sizes)
    faults = _faults(chance)
    has_children = any(fault.victim == CHILD for fault in faults)
    training = _script(has_children, chance) if is_script else _task(strategy, has_children, chance)
    return Life(seed, _job(strategy, training, replicas, gpus, chance), faults, not is_asynchronous)


def _task(strategy: dict[str, Any], has_children: bool, chance: random.Random) -> dict[str, Any]:
    draws = chance.random() < 0.5 and strategy["type"] not in ("Pipeline", "Mesh")
    arguments = {"draws": draws, "adam": not draws, "helper": has_children}
    return {"task": "noisy:Noisy", "steps": STEPS, "globalBatchSize": 24, "seed": 1, "arguments": arguments}


def _script(has_children: bool, chance: random.Random) -> dict[str, Any]:
    options = {"--steps": STEPS, "--loaders": chance.choice([1, 2]) if has_children else 0, "--every": 5}
    return {"command": ["python", "script.py", *(str(word) for option in options.items() for word in option)]}


def _job(
    strategy: dict[str, Any], training: dict[str, Any], replicas: int, gpus: int, chance: random.Random
) -> dict[str, Any]:
    workers: dict[str, Any] = {"replicas": replicas}
    if gpus:
        workers["gpus"] = gpus
    spec: dict[str, Any] = {
        "strategy": strategy,
        "training": training,
        "workers": workers,
        "failurePolicy": {"maxRestarts": 30, "nodeLostSeconds": 10},
    }
    if "task" in training:
        spec["checkpoint"] = {"everySteps": chance.choice([5, 20]), "keep": 2}
        if chance.random() < 0.15:
            spec["checkpoint"]["memoryEverySteps"] = 0
    if strategy["type"] == "ParameterServer":
        spec["parameterServers"] = {"replicas": chance.choice([1, 2])}
    return {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": "soak"}, "spec": spec}


def _faults(chance: random.Random) -> tuple[Fault, ...]:
    faults = []
    for _ in range(chance.randint(1, 4)):
        victim = chance.choices(list(SIGNALS), [weight for weight, _ in SIGNALS.values()])[0]
        signal = chance.choice(SIGNALS[victim][1])
        goes_on = signal == "STOP" and victim in (AGENT, COMMAND, CHILD)
        pause = chance.uniform(0.2, LONGEST_PAUSE) if goes_on else 0.0
        faults.append(Fault(victim, signal, chance.uniform(0, 1.5), chance.randrange(4), pause))
    return tuple(faults)
