"""What a counted step, a reported one, and one whose state is kept cost in time of the processor.

Arguments: the answer's file; then, for the last, after how many steps a snapshot is taken (0: never).

An optimizer of a tiny model steps alone, then with its steps counted, then with each step reported as well. The least
of several rounds counts: whatever else the machine does only adds to it.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from trainmaster.wire import codec, names
from trainmaster.wire.progress_page import ProgressFile
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer import session
from trainmaster_trainer.agent import optimizer_steps

STEPS = 1000
ROUNDS = 9


def main(folder: Path) -> dict[str, float]:
    """Measure; microseconds of a step, and what is added to it."""
    optimizer = _optimizer(torch.nn.Linear(8, 8))
    alone = _least(optimizer.step)
    _be_a_rank(folder, memory_every=0)
    optimizer_steps.count()
    counted = _least(optimizer.step)
    steps = iter(range(1, STEPS * (ROUNDS + 1)))

    def step_and_report() -> None:
        optimizer.step()
        session.report(step=next(steps), total=STEPS, loss=0.5)

    reported = _least(step_and_report)
    return {"step": alone, "counted": round(counted - alone, 2), "reported": round(reported - alone, 2)}


def kept(folder: Path, memory_every: int) -> dict[str, float]:
    """Measure `state.step(n)` of two layers and SGD; microseconds."""
    _be_a_rank(folder, memory_every)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    state = session.state(model=model, optimizer=_optimizer(model))
    steps = iter(range(state.restore() + 1, STEPS * (ROUNDS + 1)))
    return {"kept": _least(lambda: state.step(next(steps)))}


def _optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    first = next(model.parameters())
    model(torch.ones(first.shape[1])).sum().backward()
    return torch.optim.SGD(model.parameters(), lr=0.01)


def _be_a_rank(folder: Path, memory_every: int) -> None:
    ProgressFile(str(folder / "page"), create=True, attempt=1)
    (folder / "memory").mkdir()
    plan = TrainingPlan(
        "AllReduce", command=("a",), global_batch_size=8, checkpoint_every=10**9, memory_every=memory_every
    )
    os.environ |= {
        names.ENV_PROGRESS_FILE: str(folder / "page"),
        names.ENV_ATTEMPT: "1",
        names.ENV_CHECKPOINTS: str(folder),
        names.ENV_MEMORY: str(folder / "memory"),
        names.ENV_JOB_UID: "bench",
        names.ENV_TRAINING: codec.encode(plan).decode(),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _least(do: Callable[[], object]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(STEPS):
            do()
        rounds.append((time.thread_time() - began) / STEPS * 1e6)
    return round(min(rounds), 2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:  # as an agent's memory folder
        answer, *every = sys.argv[1:]
        found = kept(Path(scratch), int(every[0])) if every else main(Path(scratch))
        Path(answer).write_text(json.dumps(found))
