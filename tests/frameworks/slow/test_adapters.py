"""Adapters with the real libraries: their steps and losses are known, and a killed process costs what it must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs import a_job, line_of_the_ledger, python, said
from tests.frameworks.trackers import OURS
from tests.local.command import Command


def a_script(*command: str, workers: int = 1) -> dict[str, Any]:
    job = a_job("Torch", [*command], workers, PYTHONPATH=OURS)
    job["spec"]["strategy"]["type"] = "AllReduce" if workers > 1 else "OneDevice"
    job["spec"]["checkpoint"] = {"everySteps": 5, "memoryEverySteps": 1}
    return job


def lines(command: Command) -> list[dict[str, Any]]:
    text = (command.workdir / "checkpoints" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("script", "workers", "begins"),
    [
        ("hf_trainer.py", 1, "checkpoint-10"),
        ("hf_trainer.py", 2, "checkpoint-10"),
        ("lightning_fit.py", 1, "epoch=0-step=10.ckpt"),
        ("lightning_fit.py", 2, "epoch=0-step=10.ckpt"),
    ],
)
def test_a_trainer_of_a_library_has_steps_and_goes_on_from_its_own(
    command: Command, script: str, workers: int, begins: str
) -> None:
    """Of its checkpoints the newest whole one is taken, and the weights are those of one process."""
    assert command.start(a_script(python("adapters"), script, workers=workers)).end() == 0
    assert said(command, "RIGHT") == [f"20 from {begins}"] * workers
    line = line_of_the_ledger(command)
    assert line["exit"] == "SIGKILL"
    assert line["replica"] == f"worker-{workers - 1} rank {workers - 1}"
    if workers == 1:  # else the other one may have gone on for a moment
        assert (line["step"], line["stepsLost"]) == (12, 2)
    assert command.status["progress"]["summary"] == "20/20"
    told = lines(command)
    assert [one["step"] for one in told] == [*range(1, 21)]
    assert all(isinstance(one["loss"], float) for one in told)
    assert {"double", "eval_loss"} & {name for one in told for name in one.get("metrics", {})}


def test_accelerate_launch_is_replaced_by_the_agent_and_its_objects_are_kept(command: Command, folder: Path) -> None:
    """Its options become its variables; each sample of the pass is seen once, in the midst of which a process dies."""
    launcher = str(Path(python("adapters")).with_name("accelerate"))
    words = [launcher, "launch", "--cpu", "--num_processes", "2", "--mixed_precision", "bf16", "accelerate_state.py"]
    assert command.start(a_script(*words, workers=2)).end() == 0
    assert said(command, "RIGHT") == ["20 from 12 2 bf16 1 1e-11"] * 2
    assert line_of_the_ledger(command)["stepsLost"] == 0
    for rank in (0, 1):
        rows = [list(map(int, line.split())) for line in (folder / f"seen-{rank}").read_text().splitlines()]
        assert [row[0] for row in rows] == [*range(1, 21)]
        assert sorted(sample for row in rows for sample in row[1:]) == [*range(80)]


@pytest.mark.parametrize(("processes", "code"), [(4, 1), (2, 0)])
def test_accelerates_file_asks_for_as_many_processes_as_there_are(
    command: Command, folder: Path, processes: int, code: int
) -> None:
    """Else it ends at once, with the field and the cure."""
    launcher = str(Path(python("adapters")).with_name("accelerate"))
    text = (
        f"compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: {processes}\n"
    )
    (folder / "four.yaml").write_text(text)
    (folder / "short.py").write_text(
        "from accelerate import Accelerator\nprint('has', Accelerator(cpu=True).num_processes)\n"
    )
    job = a_script(launcher, "launch", "--config_file", "four.yaml", "short.py", workers=2)
    assert command.start(job).end() == code, command.stderr
    if code:
        (line,) = command.status["restarts"]
        assert line["class"] == "Configuration"
        assert (
            "num_processes of four.yaml is 4, and the job has 2 in all: set spec.workers.replicas to 4"
            in line["evidence"]
        )
    else:
        assert said(command, "has") == ["2", "2"]


def test_a_script_with_checkpoints_of_dcp_goes_on_from_the_newest_whole_one(command: Command) -> None:
    assert command.start(a_script(python("adapters"), "dcp_titan.py", workers=2)).end() == 0
    assert said(command, "RIGHT") == ["20 from 10"] * 2
    assert line_of_the_ledger(command)["stepsLost"] == 2
    assert [one["step"] for one in lines(command)] == [*range(1, 21)]
