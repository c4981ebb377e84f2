"""Scripts of Ray: a head that is up first, a node in each other worker, and `ray.init()` without arguments."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.frameworks.jobs import a_job, line_of_the_ledger, of_a_taken_port, python, running, said, until
from tests.local.command import Command, wait_gone

LEFT = Path("/tmp")  # noqa: S108 where Ray's sockets are


def a_script(name: str = "ray_sum.py", **env: str) -> dict[str, Any]:
    """A job of a driver beside the head, and another node."""
    patience = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300"}  # of Ray Train, where other tests run beside
    return a_job("Ray", [python("ray"), name], 2, **patience, **env)


def nothing_is_left(command: Command) -> bool:
    """Neither a process nor a folder."""
    until(lambda: not command.processes() and not [*LEFT.glob("tm-ray-*")])
    return True


def test_actors_are_on_all_nodes_also_after_one_has_died(command: Command) -> None:
    assert command.start(a_script(DIE_IN_ATTEMPT="1")).end() == 0
    assert said(command, "RIGHT") == ["[(0, 2450, False), (1, 2500, False)]"]
    line = line_of_the_ledger(command)
    assert (line["exit"], line["replica"]) == ("SIGKILL", "worker-1 rank 1")
    assert command.status["message"].startswith("worker-0, which leads the others, finished.")
    assert nothing_is_left(command)


def test_ray_train_has_the_weights_of_one_process(command: Command) -> None:
    assert command.start(a_script("ray_sgd.py")).end(400) == 0
    assert said(command, "RIGHT") == ["nodes=2 total=3"]


HEAD_AND_GATE = """
import os, ray
from pathlib import Path
ray.init()
Path("met").touch()
while not Path("gate").exists():
    pass
os.environ.pop("RAY_AUTH_TOKEN_PATH")
os.environ["HOME"] = "/nowhere"
print("RIGHT", ray.get(ray.remote(lambda: 3).remote()), flush=True)
"""


def test_a_head_that_dies_is_named_and_all_begin_anew(command: Command, folder: Path) -> None:
    (folder / "gate.py").write_text(HEAD_AND_GATE)
    command.start(a_script("gate.py"))
    until((folder / "met").exists, 300)
    (head,) = running(command, "start\0--head")  # Ray's own processes have that option, too
    os.kill(head, signal.SIGKILL)
    assert wait_gone(head)
    command.until_event("Restarting")
    (folder / "gate").touch()
    assert command.end() == 0
    assert said(command, "RIGHT") == ["3"]
    assert "Ray's head ended by SIGKILL" in line_of_the_ledger(command)["evidence"]
    assert nothing_is_left(command)


def test_the_errors_of_a_script_and_of_an_image_are_told(command: Command) -> None:
    assert command.start(a_script(WRONG="1")).end() == 1
    assert "ValueError: bad learning rate" in command.status["restarts"][-1]["evidence"]
    assert nothing_is_left(command)


def test_an_image_without_ray_is_named(command: Command) -> None:
    assert command.start(a_job("Ray", [python("boost"), "ray_sum.py"], 2)).end() == 1
    assert "No module named 'ray'" in command.status["message"]
    assert command.status.get("restartCount", 0) == 0


def test_a_port_that_is_taken_is_said_by_the_companion() -> None:
    assert "ddress already in use" in of_a_taken_port("Ray", "ray")
