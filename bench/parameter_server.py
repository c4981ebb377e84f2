"""The synchronous parameter server against torch's own RPC example: two trainers, one server. Aim: 5 times the steps/s.

The contestant is bench/scripts/rpc_parameter_server.py. Both train the same model with the same optimizer, 32 samples
per trainer, in turn on the same cores; the ratio is that of the medians.
"""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import independent, results

SCRIPT = Path(__file__).parent / "scripts" / "rpc_parameter_server.py"
TRAINERS = 2
WIDTH = 128
STEPS = {"trainmaster": 600, "rpc": 200}
ROUNDS = 3


def main() -> str:
    """Measure; gives the last line."""
    speeds: dict[str, list[float]] = {"trainmaster": [], "rpc": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            speeds["rpc"].append(_rpc())
            speeds["trainmaster"].append(_ours(Path(scratch) / str(number)))
            print(
                f"round {number + 1}: {speeds['trainmaster'][-1]:.0f} against {speeds['rpc'][-1]:.0f} steps/s",
                flush=True,
            )
    ratio = results.median(speeds["trainmaster"]) / results.median(speeds["rpc"])
    results.save("parameter_server", {"steps_per_second": speeds, "ratio": ratio})
    return f"parameter_server: {ratio:.1f}x torch RPC"


def _ours(folder: Path) -> float:
    spec = {
        "strategy": {"type": "ParameterServer", "parameterServer": {"update": "Sync"}},
        "training": independent.training(STEPS["trainmaster"], 32 * TRAINERS, width=WIDTH),
        "workers": {"replicas": TRAINERS},
        "parameterServers": {"replicas": 1},
        "checkpoint": {"everySteps": STEPS["trainmaster"]},
    }
    return independent.steps_per_second(folder, spec)


def _rpc() -> float:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = [str(TRAINERS + 1), str(port), str(STEPS["rpc"]), str(WIDTH)]
    processes = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(rank), *common], stdout=subprocess.PIPE, text=True)
        for rank in range(TRAINERS + 1)
    ]
    try:
        return float(processes[0].communicate(timeout=independent.SECONDS)[0].split()[-1])
    finally:
        for process in processes:
            process.kill()
            process.wait()
