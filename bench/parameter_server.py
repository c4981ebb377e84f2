"""The synchronous parameter server against torch's own RPC example: two trainers, one server. Aim: 5 times the steps/s.

The contestant is bench/scripts/rpc_parameter_server.py. Both train the same model with the same optimizer, 32 samples
per trainer, in turn on the same cores; the ratio is that of the medians. Three models: a deep one with as many tensors
as the ResNet-50 of the example has, but little to compute; a shallow one with six small tensors, whose steps are all
waiting; and one with six large tensors, whose steps are all computing. Beside them two limits: how many steps the
trainers would take if nothing were exchanged (bench/scripts/alone.py), and what thirty lines would that do
nothing but add up and step in shared memory (bare_parameter_server.py). Why the last two do not reach the aim: 0110.
"""

import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import independent, results

SCRIPTS = Path(__file__).parent / "scripts"
TRAINERS = 2
ROUNDS = 3


@dataclass(frozen=True)
class Model:
    """A perceptron, and how many steps each contestant takes with it."""

    told: str
    width: int
    layers: int
    steps: dict[str, int]

    @property
    def shape(self) -> list[str]:
        """Arguments of the scripts."""
        return [str(self.width), str(self.layers)]


DEEP = Model("162 tensors, 0.3 MB", 32, 79, {"trainmaster": 1500, "rpc": 200, "bare": 1000, "alone": 1500})
SMALL = Model("6 tensors, 0.1 MB", 128, 1, {"trainmaster": 6000, "rpc": 2000, "bare": 8000, "alone": 20000})
LARGE = Model("6 tensors, 4.6 MB", 1024, 1, {"trainmaster": 800, "rpc": 400, "bare": 600, "alone": 1200})


def main() -> str:
    """Measure; gives the last line."""
    found = {name: _compare(model) for name, model in {"deep": DEEP, "small": SMALL, "large": LARGE}.items()}
    ratios = {"ratio" if name == "small" else f"ratio_{name}": one["ratio"] for name, one in found.items()}
    results.save("parameter_server", {**ratios, **found})
    told = [f"{one['ratio']:.1f}x with {one['told']} (limit {one['limit']:.1f}x)" for one in found.values()]
    return f"parameter_server: torch RPC {', '.join(told)}"


def _compare(model: Model) -> dict[str, Any]:
    speeds: dict[str, list[float]] = {"rpc": [], "trainmaster": [], "bare": [], "alone": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            speeds["rpc"].append(_rpc(model))
            speeds["trainmaster"].append(_ours(Path(scratch) / str(number), model))
            speeds["bare"].append(_slowest([_script("bare_parameter_server.py", model, "bare")]))
            speeds["alone"].append(_slowest([_script("alone.py", model, "alone")] * TRAINERS))
            told = ", ".join(f"{name} {speed[-1]:.1f}" for name, speed in speeds.items())
            print(f"{model.told}, round {number + 1}: {told} steps/s", flush=True)
    ratios = {name: results.median(speeds[name]) / results.median(speeds["rpc"]) for name in ("trainmaster", "bare")}
    shown = {"told": model.told, "width": model.width, "layers": model.layers, "steps_per_second": speeds}
    return {**shown, "ratio": ratios["trainmaster"], "limit": ratios["bare"]}


def _script(name: str, model: Model, contestant: str) -> list[str]:
    return [name, str(model.steps[contestant]), *model.shape]


def _ours(folder: Path, model: Model) -> float:
    steps = model.steps["trainmaster"]
    spec = {
        "strategy": {"type": "ParameterServer", "parameterServer": {"update": "Sync"}},
        "training": independent.training(steps, 32 * TRAINERS, width=model.width, layers=model.layers),
        "workers": {"replicas": TRAINERS},
        "parameterServers": {"replicas": 1},
        "checkpoint": {"everySteps": steps},
    }
    return independent.steps_per_second(folder, spec)


def _rpc(model: Model) -> float:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = [str(TRAINERS + 1), str(port), str(model.steps["rpc"]), *model.shape]
    return _slowest([["rpc_parameter_server.py", str(rank), *common] for rank in range(TRAINERS + 1)])


def _slowest(scripts: list[list[str]]) -> float:
    """Run them beside one another; the least of the speeds that they print."""
    commands = [[sys.executable, str(SCRIPTS / script), *arguments] for script, *arguments in scripts]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        printed = [process.communicate(timeout=independent.SECONDS)[0].split() for process in processes]
        return min(float(words[-1]) for words in printed if words)
    finally:
        for process in processes:
            process.kill()
            process.wait()
