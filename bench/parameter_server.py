"""The synchronous parameter server against torch's own RPC example: two trainers, one server. Aim: 5 times the steps/s.

The contestant is bench/scripts/rpc_parameter_server.py. Both train the same model with the same optimizer, 32 samples
per trainer, in turn on the same cores; the ratio is that of the medians. Once with a small model (0.1 MB), whose steps
are all messages, and once with a larger one (4.6 MB), whose steps are all bytes. Beside them two limits: how many steps
the two trainers would take if nothing were exchanged (bench/scripts/alone.py), and what a server of thirty lines would
that does nothing but add up and step in shared memory (bare_parameter_server.py). Why the aim is not reached: 0110.
"""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import independent, results

SCRIPTS = Path(__file__).parent / "scripts"
TRAINERS = 2
SMALL, LARGE = 128, 1024
STEPS = {
    SMALL: {"trainmaster": 600, "rpc": 200, "bare": 2000, "alone": 2000},
    LARGE: {"trainmaster": 200, "rpc": 60, "bare": 200, "alone": 200},
}
ROUNDS = 3


def main() -> str:
    """Measure; gives the last line."""
    small, large = _compare(SMALL), _compare(LARGE)
    figures = {"ratio": small["ratio"], "ratio_large": large["ratio"], "small": small, "large": large}
    results.save("parameter_server", figures)
    told = [f"{one['ratio']:.1f}x with {one['width']} units (limit {one['limit']:.1f}x)" for one in (small, large)]
    return f"parameter_server: torch RPC {', '.join(told)}"


def _compare(width: int) -> dict[str, Any]:
    speeds: dict[str, list[float]] = {"rpc": [], "trainmaster": [], "bare": [], "alone": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            speeds["rpc"].append(_rpc(width))
            speeds["trainmaster"].append(_ours(Path(scratch) / str(number), width))
            speeds["bare"].append(_slowest([["bare_parameter_server.py", str(STEPS[width]["bare"]), str(width)]]))
            speeds["alone"].append(_alone(width))
            told = ", ".join(f"{name} {speed[-1]:.0f}" for name, speed in speeds.items())
            print(f"{width} units, round {number + 1}: {told} steps/s", flush=True)
    ratios = {name: results.median(speeds[name]) / results.median(speeds["rpc"]) for name in ("trainmaster", "bare")}
    return {"width": width, "steps_per_second": speeds, "ratio": ratios["trainmaster"], "limit": ratios["bare"]}


def _ours(folder: Path, width: int) -> float:
    steps = STEPS[width]["trainmaster"]
    spec = {
        "strategy": {"type": "ParameterServer", "parameterServer": {"update": "Sync"}},
        "training": independent.training(steps, 32 * TRAINERS, width=width),
        "workers": {"replicas": TRAINERS},
        "parameterServers": {"replicas": 1},
        "checkpoint": {"everySteps": steps},
    }
    return independent.steps_per_second(folder, spec)


def _rpc(width: int) -> float:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = [str(TRAINERS + 1), str(port), str(STEPS[width]["rpc"]), str(width)]
    return _slowest([["rpc_parameter_server.py", str(rank), *common] for rank in range(TRAINERS + 1)])


def _alone(width: int) -> float:
    return _slowest([["alone.py", str(STEPS[width]["alone"]), str(width)] for _ in range(TRAINERS)])


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
