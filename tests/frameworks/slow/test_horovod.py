"""Scripts of Horovod over gloo: the sum of all ranks and the weights of one process, without its launcher and ssh."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

from tests.frameworks.jobs import a_job, line_of_the_ledger, of_a_taken_port, python, running, said, until
from tests.local.command import Command, wait_gone


def a_script(name: str, **env: str) -> dict[str, Any]:
    """A job of two workers with two ranks each."""
    job = a_job("Horovod", [python("horovod"), name], **env)
    job["spec"]["workers"]["gpus"] = 2  # as many ranks each: Horovod's script computes on the processor
    return job


def test_horovod_trains_as_one_process_does_also_after_a_death(command: Command) -> None:
    assert command.start(a_script("horovod_sgd.py", DIE_IN_ATTEMPT="1")).end() == 0
    logs = "".join(log.read_text() for log in (command.workdir / "logs").glob("*.log"))
    slots = ("local=0/2 cross=0/2", "local=1/2 cross=0/2", "local=0/2 cross=1/2", "local=1/2 cross=1/2")
    right = [f"rank={rank}/4 {slot} total=10" for rank, slot in enumerate(slots)]
    assert sorted(re.findall(r"RIGHT (.*)$", logs, re.MULTILINE)) == right
    line = line_of_the_ledger(command)
    assert (line["exit"], line["replica"]) == ("SIGKILL", "worker-0 rank 1")
    until(lambda: not command.processes())


HELD = """
import horovod.torch as hvd
from pathlib import Path
hvd.init()
Path(f"met-{hvd.rank()}").touch()
while not Path("gate").exists():
    pass
print("RIGHT", hvd.size(), flush=True)
"""


def test_a_rendezvous_that_dies_is_named_and_the_group_begins_again(command: Command, folder: Path) -> None:
    (folder / "held.py").write_text(HELD)
    command.start(a_job("Horovod", [python("horovod"), "held.py"]))
    until(lambda: len([*folder.glob("met-*")]) == 2, 300)
    (rendezvous,) = running(command, "RendezvousServer")
    os.kill(rendezvous, signal.SIGKILL)
    assert wait_gone(rendezvous)
    command.until_event("Restarting")
    (folder / "gate").touch()
    assert command.end() == 0
    assert said(command, "RIGHT")[-2:] == ["2"] * 2  # a rank of the first attempt may see the gate before its end
    assert "Horovod's rendezvous ended by SIGKILL" in line_of_the_ledger(command)["evidence"]


def test_a_script_that_fails_has_its_own_error_as_evidence(command: Command, folder: Path) -> None:
    (folder / "wrong.py").write_text("import horovod.torch as hvd\nhvd.init()\nraise ValueError('bad learning rate')")
    assert command.start(a_script("wrong.py")).end() == 1
    assert "ValueError: bad learning rate" in command.status["restarts"][-1]["evidence"]


def test_an_image_without_horovod_is_named(command: Command) -> None:
    assert command.start(a_job("Horovod", [python("boost"), "horovod_sgd.py"])).end() == 1
    assert "No module named 'horovod'" in command.status["message"]
    assert command.status.get("restartCount", 0) == 0


def test_a_port_that_is_taken_is_said_by_the_companion() -> None:
    assert "ddress already in use" in of_a_taken_port("Horovod", "horovod")
