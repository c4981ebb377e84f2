"""Scripts that know nothing of Trainmaster, or say one line to it, and what is known of their steps."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.local.command import Command, a_script

# An unchanged loop with a checkpoint of its own every ten steps. At step 25 its first process kills itself.
PLAIN = """
import os, signal, time
from pathlib import Path
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
kept, first = Path("kept.pt"), 0
if kept.exists():
    state = torch.load(kept)
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
else:
    kill_at = 25
for step in range(first + 1, 41):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        torch.save({"optimizer": optimizer.state_dict(), "step": step}, kept)
    if not first and step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2 if first else 0.02)
"""


def test_an_unchanged_script_has_steps_speed_and_the_cost_of_its_restart(command: Command, folder: Path) -> None:
    """Adam counts the steps that it has taken, so it is known where the script went on."""
    job = a_script(PLAIN, folder)
    job["spec"]["training"] |= {"steps": 40, "globalBatchSize": 2}
    assert command.start(job).end() == 0
    status = command.status
    assert status["progress"]["summary"] == "40/40"
    assert 1 < status["progress"]["samplesPerSecond"] < 100, "two for each step"
    (line,) = status["restarts"]
    assert (line["step"], line["stepsLost"]) == (25, 5)
    assert line["why"].endswith("It went on from step 20.")
    curve = [point["step"] for point in status["history"] if point["step"] > 20]
    assert len(curve) >= 3, "a point for each second, of four"
    told = [seen["progress"] for seen in command.seen if "progress" in seen]
    assert any(one.get("eta") and one["step"] > 0 for one in told), told


# Knows no torch. Its steps are what it says; kept every ten steps. Ranks stand at step 25 until one is stopped.
REPORTING = """
import os, time
from pathlib import Path
from trainmaster_trainer import session
rank, attempt = os.environ["RANK"], os.environ["TRAINMASTER_ATTEMPT"]
Path(f"rank-{rank}-{attempt}.txt").write_text(str(os.getpid()))
kept = Path(f"kept-{rank}")
first = int(kept.read_text()) if kept.exists() else 0
session.report(step=first, total=40)
for step in range(first + 1, 41):
    while attempt == "1" and (step == 26 or rank == "0" and step == 25 and not Path("there").exists()):
        time.sleep(0.01)
    time.sleep(0.02)
    session.report(step=step, loss=1 / step, accuracy=0.5)
    if step % 10 == 0:
        kept.write_text(str(step))
    if rank == "1" and step == 25:
        Path("there").touch()
"""


def test_a_script_that_reports_has_everything_that_a_task_has(command: Command, folder: Path) -> None:
    """A stopped rank is named, the restart costs what it costs, and each step has one line."""
    job = a_script(REPORTING, folder, workers=2)
    command.start(job)
    told = command.until_step(25)["progress"]
    assert told["totalSteps"] == 40
    assert told["loss"] < 0.2
    os.kill(command.rank_pid(1), signal.SIGSTOP)
    assert "is stopped (SIGSTOP)" in command.until_event("Restarting")["event"]["message"]
    assert command.end() == 0
    status = command.status
    assert status["progress"]["summary"] == "40/40"
    (line,) = status["restarts"]
    assert (line["class"], line["step"], line["stepsLost"]) == ("Hang", 25, 5)
    assert line["secondsLost"] > 0
    lines = [json.loads(text) for text in (command.workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in lines] == [*range(1, 41)]
    assert lines[-1]["metrics"] == {"accuracy": 0.5}


# As a loop with tqdm prints it, under torchrun; the loss is on lines of another rank too, which do not count.
BAR = r"""
import os, sys, time
import torch
rank = int(os.environ["RANK"])
assert os.environ["WORLD_SIZE"] == "2"
optimizer = torch.optim.SGD(torch.nn.Linear(4, 1).parameters())
time.sleep(1)  # as others open their data
for step in range(1, 31):
    optimizer.step()
    time.sleep(0.05)
    if rank == 0:
        sys.stderr.write(f"\r {step * 100 // 30}%|###   | {step}/30 [00:01<00:04, 17.3it/s, loss={1 / step:.4f}]")
    else:
        print(f"loss={step}")
    if step == 5:
        print("a" * 900)
if rank == 0:
    sys.stderr.write("\nthe end: loss=0.25")
"""


def test_what_a_script_prints_under_torchrun_is_read_within_bounds(command: Command, folder: Path) -> None:
    """An expression that goes back and forth for ever is dropped; the others go on."""
    job = a_script(BAR, folder, workers={"replicas": 1, "gpus": 2})
    job["spec"]["training"] = {
        "command": ["torchrun", "--nproc-per-node=2", "script.py"],
        "progress": {"loss": r"loss=([0-9.]+)", "total": r"\d+/(\d+) \[", "step": r"(?:a+)+b([0-9]+)"},
    }
    assert command.start(job).end() == 0
    progress = command.status["progress"]
    assert progress["summary"] == "30/30", "the optimizer's steps are counted, the bar tells of how many"
    assert progress["loss"] == 0.25, "its last half line, too"
    assert command.status["restarts"] == []
    assert command.status["goodput"]["tryStarting"] > 0, "the ranks have read no sample yet"
    (log,) = (command.workdir / "logs").glob("*worker-0*.log")
    assert "spec.training.progress.step takes too long" in log.read_text()
