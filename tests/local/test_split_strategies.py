"""Strategies that split a model, as a user starts them."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.local.command import Command, a_job, kill

DIGITS = {"task": "trainmaster_trainer.tasks.digits:Digits", "arguments": {"layers": 3, "hidden": 32}}


def a_split_job(strategy: dict[str, Any], workers: dict[str, Any], **training: Any) -> dict[str, Any]:
    training = {**DIGITS, "steps": 20, "globalBatchSize": 30, "seed": 1, **training}
    return a_job(strategy=strategy, workers=workers, training=training)


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [
        ({"type": "FullySharded"}, {"replicas": 3}),
        ({"type": "Pipeline", "pipeline": {"schedule": "GPipe", "microBatches": 4}}, {"replicas": 2}),
        ({"type": "Tensor"}, {"replicas": 1, "gpus": 2}),
        ({"type": "Mesh", "mesh": {"pipeline": 2, "tensor": 2}}, {"replicas": 2, "gpus": 2}),
    ],
    ids=lambda value: str(value.get("type", "")),
)
def test_a_model_is_split_by_one_word(command: Command, strategy: dict[str, Any], workers: dict[str, Any]) -> None:
    """To the end, with a whole checkpoint of it."""
    assert command.start(a_split_job(strategy, workers)).end() == 0
    status = command.seen[-1]
    assert (status["phase"], status["progress"]["step"], status["restartCount"]) == ("Succeeded", 20, 0)
    manifest = json.loads((command.workdir / "checkpoints" / "step-00000020" / "manifest.json").read_text())
    tensors = [name for shard in manifest["shards"] for name in shard["tensors"] if name.startswith("model/")]
    assert len(tensors) == len(set(tensors)) == 8
    assert manifest["strategy"] == strategy["type"]


TOLD = """
import os, time
from pathlib import Path
from trainmaster_trainer.tasks.digits import Digits
class Told(Digits):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        Path(f"rank-{os.environ['RANK']}-{os.environ['TRAINMASTER_ATTEMPT']}.txt").write_text(f"{os.getpid()} here")
    def loss(self, outputs, targets):
        time.sleep(0.01)  # leaves the processor to others, and the test the time to kill
        return super().loss(outputs, targets)
"""
STEPS = 400


def test_a_pipeline_goes_on_when_a_rank_and_then_a_replica_are_lost(command: Command) -> None:
    """All stages again, from the step at which all of them were: of the lost replica's, the other one keeps copies."""
    (command.folder / "told.py").write_text(TOLD)
    job = a_split_job({"type": "Pipeline"}, {"replicas": 2}, task="told:Told", steps=STEPS)
    job["spec"]["checkpoint"] = {"everySteps": 2000, "memoryEverySteps": 1}
    command.start(job)
    command.until_step(20)
    kill(command.rank_pid(1), signal.SIGKILL)
    command.until_event("Restarting")
    command.until_event("Running")
    at: int = command.until(lambda line: "progress" in line)["progress"]["step"]
    command.until_step(at + 20)
    kill(command.agents()[1], signal.SIGKILL)
    assert command.end() == 0
    assert (command.status["phase"], command.status["restartCount"]) == ("Succeeded", 2)
    assert command.status["incarnations"] == {"worker-1": 1}
    assert [line["stepsLost"] for line in command.status["restarts"]] == [0, 0]
    metrics = [
        json.loads(line) for line in (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in metrics if "loss" in line] == list(range(1, STEPS + 1))


def test_more_stages_than_layers_is_told_with_the_number_that_fits(command: Command) -> None:
    """Failed before any step, by the trainer, which alone knows the model."""
    training = {**DIGITS, "arguments": {"layers": 1}}
    assert command.start(a_split_job({"type": "Pipeline"}, {"replicas": 3}, **training), "--output", "text").end() == 1
    assert "Use 2 stages" in command.text + command.stderr
    assert "Traceback" not in command.text + command.stderr
