"""torchdata's StatefulDataLoader and Hugging Face's datasets as a task's dataset, with a rank that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frameworks.jobs import python
from tests.local.command import Command, a_job

STEPS = 14  # of five samples: three epochs


@pytest.mark.parametrize("kind", ["loader", "shuffled", "streaming", "table"])
def test_a_killed_rank_goes_on_with_the_samples_of_a_calm_run(command: Command, kind: str) -> None:
    """From a checkpoint, in the midst of an epoch: the losses are those of one process that nobody disturbed."""
    (libraries,) = Path(python("adapters")).parents[1].glob("lib/python3.*/site-packages")
    training = {"task": "library_data:OfLibraries", "arguments": {"kind": kind}, "steps": STEPS, "globalBatchSize": 5}
    env = [{"name": "LIBRARIES", "value": str(libraries)}]
    told = {}
    for name, workers, strategy, faults in (("calm", 1, "OneDevice", ()), ("killed", 2, "AllReduce", (8,))):
        job = a_job(
            strategy={"type": strategy},
            training={**training, "seed": 3, **({"dataWorkers": 2} if kind == "table" else {})},
            workers={"replicas": workers, "env": env},
            checkpoint={"everySteps": 3, "memoryEverySteps": 0},
        )
        workdir = command.folder / name
        options = [word for step in faults for word in ("--fault", f"kill:worker/{workers - 1}@step={step}")]
        assert command.start(job, "--workdir", str(workdir), *options).end() == 0, command.stderr
        lines = map(json.loads, (workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines())
        told[name] = [line["loss"] for line in lines if "loss" in line]
    assert len(told["calm"]) == STEPS
    assert told["killed"] == pytest.approx(told["calm"], rel=1e-6)
    status = json.loads((command.folder / "killed" / "status.json").read_text())
    (line,) = status["restarts"]
    assert line["step"] == 8
    assert line["stepsLost"] in (2, 5, 8), "to a checkpoint, the newest that stood by then"
