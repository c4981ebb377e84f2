"""A script on one GPU under torchrun and under Trainmaster, in turn: its steps, and SIGKILL to the next first step.

Both keep 1.6 GB of state: torchrun's script by torch.save every 100 steps, ours by session.state, a copy in memory as
often as costs 3 % and a durable one every 100 steps. Wanted: steps at most 1.03 times as long. What the first step
after a kill waits for is kept by stages, as much of it is CUDA's, NCCL's and the script's own. It needs a GPU;
elsewhere it says so and measures nothing.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench import results
from bench.contestants import BIN, Note, notes_of
from bench.jobs import document

SCRIPT = Path(__file__).parent / "scripts" / "gpu_steps.py"
ROUNDS = 3
BEFORE = 250  # steps before the kill
FIRST = 50  # of them are not counted
STEPS = 1_000_000  # until we end it
PATIENCE = 120.0  # seconds


def main() -> str:
    """Measure; gives the last line."""
    if not torch.cuda.is_available():
        return "gpu: this machine has no GPU; nothing was measured"
    took: dict[str, list[dict[str, Any]]] = {"torchrun": [], "trainmaster": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(ROUNDS):
            for name in took if number % 2 else reversed(list(took)):
                took[name].append(_one(name, Path(scratch) / f"{name}-{number}"))
                print(f"round {number + 1}: {name} {took[name][-1]}", flush=True)
    step, back = (_median_ratio(took, of) for of in ("step_seconds", "restart_seconds"))
    figures = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": took,
        "step_ratio": 1 / step,
        "restart_ratio": back,
    }
    results.save("gpu", figures)
    return f"gpu: steps {1 / step:.3f} times torchrun's, back {back:.1f} times sooner"


def _median_ratio(took: dict[str, list[dict[str, Any]]], of: str) -> float:
    """Return the median over the rounds of torchrun's figure by ours."""
    return results.median([a[of] / b[of] for a, b in zip(took["torchrun"], took["trainmaster"], strict=True)])


def _one(name: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    command = _torchrun(folder) if name == "torchrun" else _trainmaster(folder)
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
    try:
        before = _wait(folder, process, lambda note: note.step >= BEFORE)
        os.kill(before.pid, signal.SIGKILL)
        killed = time.time()
        after = _wait(folder, process, lambda note: note.pid != before.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    notes = [note for note in notes_of(folder, 0) if note.pid == before.pid]
    ends = [note.time for note in notes if note.step >= FIRST]
    seconds = (ends[-1] - ends[0]) / (len(ends) - 1)
    lost = notes[-1].step - (after.step - 1)
    stages = {name: at - killed for name, at in _stages(folder, after.pid)}
    return {
        "step_seconds": seconds,
        "restart_seconds": after.time - killed,
        "steps_lost": lost,
        "seconds_from_the_kill": stages,
    }


def _stages(folder: Path, pid: int) -> list[tuple[str, float]]:
    """Return when this process had come how far, in seconds since the epoch."""
    lines = [line.split() for line in (folder / "stages.txt").read_text().splitlines()]
    return [(name, float(at)) for name, at, who in lines if int(who) == pid]


def _wait(folder: Path, process: "subprocess.Popen[bytes]", wanted: Any) -> Note:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        for note in notes_of(folder, 0):
            if wanted(note):
                return note
        time.sleep(0.02)
    raise TimeoutError((folder / "output.txt").read_text()[-2000:])


def _torchrun(folder: Path) -> list[str]:
    flags = ["--standalone", "--nproc-per-node=1", "--max-restarts=3"]
    return [str(BIN / "torchrun"), *flags, str(SCRIPT), str(folder), str(STEPS), "own"]


def _trainmaster(folder: Path) -> list[str]:
    spec = {
        "strategy": {"type": "AllReduce"},
        "training": {"command": ["python", str(SCRIPT), str(folder), str(STEPS), "session"]},
        "workers": {"replicas": 1, "gpus": 1},
        "checkpoint": {"everySteps": 100},
    }
    (folder / "job.yaml").write_text(json.dumps(document(spec)))
    return [str(BIN / "trainmaster"), "run", "job.yaml", "--workdir", "work"]


if __name__ == "__main__":
    print(main())
