"""Loss against samples under every strategy, on the same task and seed: synchronous ones lie on one another.

The text example with few ranks; each strategy's curve goes into docs/plots (bench/plots.py). The figure is the spread
of the synchronous strategies' last losses, relative to OneDevice.
"""

import tempfile
from pathlib import Path
from typing import Any

from bench import jobs, results

STEPS = 200
BATCH = 32
ARGUMENTS = {"layers": 2, "width": 32, "heads": 4, "context": 32, "bytes": 400_000}

# Strategy to (workers or gpus, more of the spec).
CONTESTANTS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "OneDevice": ({"replicas": 1}, {}),
    "Mirrored": ({"replicas": 1, "gpus": 2}, {}),
    "AllReduce": ({"replicas": 2}, {}),
    "CentralStorage": ({"replicas": 1, "gpus": 2}, {}),
    "LocalSGD": ({"replicas": 2}, {}),
    "FullySharded": ({"replicas": 2}, {}),
    "Pipeline": ({"replicas": 2}, {}),
    "Tensor": ({"replicas": 2}, {}),
    "ParameterServer": ({"replicas": 2}, {"parameterServers": {"replicas": 1}}),
    "Gossip": ({"replicas": 2}, {}),
}
SYNCHRONOUS = ("Mirrored", "AllReduce", "CentralStorage", "FullySharded", "Pipeline", "Tensor")


def main() -> str:
    """Train with each; gives the last line."""
    curves: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in CONTESTANTS:
            curves[name] = _curve(name, Path(scratch) / name)
            print(f"{name}: loss {curves[name][-1][1]:.4f} after {curves[name][-1][0]:.0f} samples", flush=True)
    expected = curves["OneDevice"][-1][1]
    spread = max(abs(curves[name][-1][1] / expected - 1) for name in SYNCHRONOUS)
    results.save("loss_curves", {"curves": curves, "spread": spread})
    return f"loss_curves: {spread:.2g} is how far any synchronous strategy's last loss is from OneDevice's"


def _curve(name: str, folder: Path) -> list[list[float]]:
    """[samples, loss] every few steps."""
    workers, more = CONTESTANTS[name]
    job = jobs.a_job({"type": name}, 1, BATCH, STEPS, arguments=ARGUMENTS, **more)
    job["spec"]["workers"] = workers
    losses = {line["step"]: line["loss"] for line in jobs.train(job, folder) if "loss" in line}
    return [[step * BATCH, losses[step]] for step in sorted(losses) if step % 5 == 0]
