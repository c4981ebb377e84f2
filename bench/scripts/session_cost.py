"""What a counted step and a reported one cost in time of the processor. Argument: the answer's file.

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
from trainmaster.wire.progress import ProgressFile
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer import session
from trainmaster_trainer.agent import optimizer_steps

STEPS = 1000
ROUNDS = 9


def main(folder: Path) -> dict[str, float]:
    """Measure; microseconds of a step, and what is added to it."""
    weights = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.01)
    weights(torch.ones(8)).sum().backward()
    alone = _least(optimizer.step)
    ProgressFile(str(folder / "page"), create=True, attempt=1)
    os.environ |= {
        names.ENV_PROGRESS_FILE: str(folder / "page"),
        names.ENV_ATTEMPT: "1",
        names.ENV_CHECKPOINTS: str(folder),
        names.ENV_TRAINING: codec.encode(TrainingPlan("AllReduce", command=("a",), global_batch_size=8)).decode(),
        "RANK": "0",
    }
    optimizer_steps.count()
    counted = _least(optimizer.step)
    steps = iter(range(1, STEPS * (ROUNDS + 1)))

    def step_and_report() -> None:
        optimizer.step()
        session.report(step=next(steps), total=STEPS, loss=0.5)

    reported = _least(step_and_report)
    return {"step": alone, "counted": round(counted - alone, 2), "reported": round(reported - alone, 2)}


def _least(do: Callable[[], object]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(STEPS):
            do()
        rounds.append((time.thread_time() - began) / STEPS * 1e6)
    return round(min(rounds), 2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        Path(sys.argv[1]).write_text(json.dumps(main(Path(scratch))))
