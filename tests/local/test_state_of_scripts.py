"""Scripts whose state is kept by `session.state`: kills, stops, and what is left of them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tests.local.command import BIN, Command, a_job, kill

SCRIPTS = Path(__file__).parent / "scripts_with_state"


def a_keeping_script(name: str, folder: Path, **spec: Any) -> dict[str, Any]:
    """A job of two workers that runs one of SCRIPTS, keeps a snapshot after each step, and saves every tenth."""
    shutil.copy(SCRIPTS / name, folder)
    checkpoint = {"everySteps": 10, "memoryEverySteps": 1}
    return a_job(**{"training": {"command": ["python", name]}, "checkpoint": checkpoint, **spec})


def model_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The model in a checkpoint's files, as anybody may read it."""
    tensors = {name: one for path in checkpoint.glob("*.safetensors") for name, one in load_file(path).items()}
    return {name.removeprefix("model/"): one for name, one in tensors.items() if name.startswith("model/")}


def test_kills_and_a_stop_leave_the_model_of_plain_torchrun(command: Command, folder: Path) -> None:
    """Two ranks and an agent are killed and lose no step; Ctrl-C saves; the next run ends with the same bits.

    What the agent's replica had in memory goes with it: its rank goes on from what the other replica keeps.
    """
    job = a_keeping_script("usual.py", folder)
    faults = ["--fault", "kill:worker/1@step=13", "--fault", "kill:worker/0@step=17"]
    command.start(job, *faults, SECONDS_A_STEP="0.15")
    command.until_step(19)
    kill(command.agents()[1], signal.SIGKILL)
    command.until_event("Restarting")
    command.until_event("Running")
    at: int = command.until(lambda line: "progress" in line)["progress"]["step"]
    command.until_step(at + 2)
    command.send(signal.SIGINT)
    command.end()
    stopped = command.status
    restarts = [(line["step"], line["stepsLost"]) for line in stopped["restarts"]]
    assert restarts[:2] == [(13, 0), (17, 0)]
    assert [lost for _, lost in restarts[2:]] == [0], "no step is lost with the replica"
    assert stopped["incarnations"] == {"worker-1": 1}
    left_at = stopped["checkpoint"]["step"]
    assert left_at >= at + 2
    told = (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(told[-1])["step"] == left_at, "it saved where it was, and not at a tenth step only"

    assert command.start(job).end() == 0
    assert command.status["checkpoint"]["step"] == 40
    assert f"Resuming from step {left_at} of attempt" in _logs(command)
    audit = subprocess.run([BIN, "audit", str(command.workdir)], capture_output=True, text=True, check=True)
    assert "Steps 1 to 40, each exactly once" in audit.stdout
    lines = [json.loads(text) for text in (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, 41)]

    (folder / "plain").mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    subprocess.run([*torchrun, str(folder / "usual.py")], cwd=folder / "plain", check=True)
    told = torch.load(folder / "plain" / "model.pt")
    plain = told["model"]
    assert [line["loss"] for line in lines] == told["losses"]
    kept = model_of(command.workdir / "checkpoints" / "step-00000040")
    assert plain.keys() == kept.keys()
    assert all(torch.equal(plain[name], kept[name]) for name in plain)


def _logs(command: Command) -> str:
    return "".join(path.read_text() for path in (command.workdir / "logs").glob("*"))
