"""Scripts that know nothing of Trainmaster, or say one line to it, and what is known of their steps."""

from __future__ import annotations

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
    time.sleep(0.02)
"""


def test_an_unchanged_script_has_steps_speed_and_the_cost_of_its_restart(command: Command, folder: Path) -> None:
    """Adam counts the steps that it has taken, so it is known where the script went on."""
    job = a_script(PLAIN, folder)
    job["spec"]["training"] |= {"steps": 40, "globalBatchSize": 2}
    assert command.start(job).end() == 0
    status = command.status
    assert status["progress"]["summary"] == "40/40"
    assert 1 < status["progress"]["samplesPerSecond"] < 100, "two for each step of 20 ms"
    (line,) = status["restarts"]
    assert (line["step"], line["stepsLost"]) == (25, 5)
    assert line["why"].endswith("It went on from step 20.")
    told = [seen["progress"] for seen in command.seen if "progress" in seen]
    assert any(one.get("eta") and one["step"] > 0 for one in told), told
