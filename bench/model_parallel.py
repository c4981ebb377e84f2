"""Strategies that split a model: their step time against the same written by hand with torch and torchrun, in turn.

Aim: at most 1.05 of the time of FSDP2, DTensor and pipelining by hand. Steps count from when ours has made ready what
stands by for the next restart, some seconds after the first one. And the bubble of a pipeline whose layers only sleep,
so that no core is missing: the part of a step in which a stage is idle, near (p-1)/(m+p-1).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import results
from bench.jobs import document

HERE = Path(__file__).parent / "scripts"
BIN = Path(sys.executable).parent
ROUNDS = int(os.environ.get("ROUNDS", "3"))
STEPS = 140
WARM_UP = 60
BATCH = 32
MODEL = {"layers": 4, "width": 128, "heads": 4, "context": 64, "bytes": 400_000}
STRATEGIES = ("FullySharded", "Tensor", "Pipeline")
PIPELINES = (("GPipe", 2, 4), ("1F1B", 2, 4), ("1F1B", 3, 6))  # schedule, stages, micro-batches
SLEEP = 0.03  # seconds
LIMIT = 400  # seconds for one run


def main() -> str:
    """Measure; gives the last line."""
    with tempfile.TemporaryDirectory() as scratch:
        speed = {strategy: _compare(strategy, Path(scratch)) for strategy in STRATEGIES}
        bubbles = [_bubble(Path(scratch), *pipeline) for pipeline in PIPELINES]
    ratios = {strategy: figures["ratio"] for strategy, figures in speed.items()}
    short = {"fully_sharded": ratios["FullySharded"], "tensor": ratios["Tensor"], "pipeline": ratios["Pipeline"]}
    results.save("model_parallel", {**short, "speed": speed, "bubbles": bubbles})
    told = ", ".join(f"{strategy} {ratio:.2f}x" for strategy, ratio in ratios.items())
    last = bubbles[-1]
    return f"model_parallel: {told} by hand; bubble {last['measured']:.3f}, in theory {last['theory']:.3f}"


def _compare(strategy: str, scratch: Path) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"by_hand": [], "trainmaster": []}
    for number in range(ROUNDS):
        contestants = [("by_hand", _by_hand), ("trainmaster", _trainmaster)]
        for name, run in contestants if number % 2 else contestants[::-1]:
            folder = scratch / f"{strategy}-{name}-{number}"
            folder.mkdir()
            seconds[name].append(results.median(run(strategy, folder)[WARM_UP:]))
            print(f"{strategy} round {number + 1}: {name} {seconds[name][-1] * 1000:.1f} ms", flush=True)
    ratios = [ours / theirs for ours, theirs in zip(seconds["trainmaster"], seconds["by_hand"], strict=True)]
    return {"seconds": seconds, "ratios": ratios, "ratio": results.median(ratios), "worst": max(ratios)}


def _by_hand(strategy: str, folder: Path) -> list[float]:
    told = folder / "seconds.json"
    arguments = [strategy, str(STEPS), json.dumps(MODEL), str(BATCH), str(told)]
    command = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", str(HERE / "model_parallel.py"), *arguments]
    _run(command, folder)
    seconds: list[float] = json.loads(told.read_text())
    return seconds


def _trainmaster(strategy: str, folder: Path) -> list[float]:
    training = {"task": "trainmaster_trainer.tasks.text:Text", "arguments": MODEL, "globalBatchSize": BATCH}
    return _job(folder, {"type": strategy}, training, STEPS, 2)


def _bubble(scratch: Path, schedule: str, stages: int, micro_batches: int) -> dict[str, Any]:
    """The idle part of a step, from its time and the time that a stage works in it."""
    folder = scratch / f"bubble-{schedule}-{stages}"
    folder.mkdir()
    shutil.copy(HERE / "sleepy.py", folder)
    training = {
        "task": "sleepy:Sleepy",
        "arguments": {"layers": stages, "seconds": SLEEP},
        "globalBatchSize": 2 * micro_batches,
    }
    strategy = {"type": "Pipeline", "pipeline": {"schedule": schedule, "microBatches": micro_batches}}
    step = results.median(_job(folder, strategy, training, 20, stages)[5:])
    figures = {
        "schedule": schedule,
        "stages": stages,
        "micro_batches": micro_batches,
        "step_seconds": step,
        "measured": 1 - 2 * SLEEP * micro_batches / step,
        "theory": (stages - 1) / (micro_batches + stages - 1),
    }
    print(f"{schedule}, {stages} stages, {micro_batches} micro-batches: bubble {figures['measured']:.3f}", flush=True)
    return figures


def _job(folder: Path, strategy: Any, training: Any, steps: int, workers: int) -> list[float]:
    """Seconds of each step of a job of ours."""
    spec = {
        "strategy": strategy,
        "training": {**training, "steps": steps, "seed": 1},
        "workers": {"replicas": workers},
        "checkpoint": {"everySteps": 100_000},
    }
    (folder / "job.yaml").write_text(json.dumps(document(spec)))
    _run([str(BIN / "trainmaster"), "run", str(folder / "job.yaml"), "--workdir", str(folder / "work")], folder)
    lines = (folder / "work" / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    return [line["step_seconds"] for line in map(json.loads, lines) if "step_seconds" in line]


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
        try:
            code = process.wait(LIMIT)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)
    if code:
        raise RuntimeError(f"{command[:2]} ended with {code}: {(folder / 'output.txt').read_text()[-2000:]}")
