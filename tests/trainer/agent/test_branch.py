"""Ranks of later attempts find imported what the first one imported; unless that could be told apart."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from trainmaster.wire.agent_states import AgentState

from tests.trainer.agent.conftest import MakeAgent
from tests.trainer.agent.installed import Installed
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import Witness, ours

W0 = ("worker", 0)


def until_branched() -> int:
    """Wait for a child that stands by in a branch; the branch's pid."""
    while True:
        processes = ours()
        for pid in [pid for pid, name in processes.items() if name == "tm-warm-task"]:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if "tm-standby" in {processes.get(int(child)) for child in children}:
                return pid
        time.sleep(0.05)  # no event tells of it


def fail(intake: Intake, witness: Witness, attempt: int) -> None:
    """Kill the rank of this attempt, and order the next one."""
    os.kill(witness.find(what="imported")[-1]["pid"], signal.SIGKILL)
    intake.wait_state(AgentState.FAILED, attempt, W0)
    intake.run(attempt + 1, [(W0, 1)])
    witness.wait(attempt + 1, what="imported")


def begin(agent: MakeAgent, intake: Intake, installed: Installed, *arguments: str, **variables: str) -> None:
    agent("python", "SCRIPTS/imports.py", *arguments, python=installed.python, **installed.variables | variables)
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])


def test_a_restart_finds_imported_what_the_first_start_imported(
    agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed
) -> None:
    begin(agent, intake, installed)
    (first,) = witness.wait(what="imported")
    assert first["where"] == first["pid"]
    branch = until_branched()
    fail(intake, witness, 1)
    second = witness.find(what="imported")[1]
    assert (second["where"], second["variable"], second["never"]) == (branch, "set before", False)
    assert second["pid"] != branch
    fail(intake, witness, 2)
    assert witness.find(what="imported")[2]["where"] == branch


def test_what_is_noted(agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed) -> None:
    """Installed modules that were imported; neither the script's own, nor one that was only asked for."""
    begin(agent, intake, installed)
    witness.wait(what="imported")
    until_branched()
    (learned,) = Path(installed.variables["PYTHONPATH"]).rglob("scratch-*/*/imports")
    lines = [json.loads(line)[0] for line in learned.read_text().splitlines()]
    assert {"HEAVY": "set before"} in lines
    found = [
        line for line in map(json.loads, learned.read_text().splitlines()) if str(line[0]).startswith(("heavy", "own"))
    ]
    assert [name for name, _ in found] == ["heavy", *(f"heavy.a{number}" for number in range(25)), "own_module"]
    assert found[-1] == ["own_module", "outside"]


def test_a_branch_that_is_killed_takes_its_ranks_along(
    agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed
) -> None:
    begin(agent, intake, installed)
    witness.wait(what="imported")
    branch = until_branched()
    fail(intake, witness, 1)
    os.kill(branch, signal.SIGKILL)
    (heartbeat,) = intake.wait_state(AgentState.FAILED, 2, W0)
    assert heartbeat.exit is not None
    assert heartbeat.exit.error is not None
    assert (heartbeat.exit.signal, heartbeat.exit.error.type) == ("SIGKILL", "WarmParentLost")
    intake.run(3, [(W0, 1)])
    said = witness.wait(3, what="imported")[-1]
    assert said["where"] == said["pid"]


def test_a_rank_that_fails_at_once_is_not_forked_from_there_again(
    agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed
) -> None:
    begin(agent, intake, installed, "3")
    witness.wait(what="imported")
    branch = until_branched()
    fail(intake, witness, 1)
    assert witness.find(what="imported")[1]["where"] == branch
    intake.wait_state(AgentState.FAILED, 2, W0)
    intake.run(3, [(W0, 1)])
    said = witness.wait(3, what="imported")[-1]
    assert said["where"] == said["pid"]


def test_who_names_modules_beforehand_gets_those(
    agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed
) -> None:
    begin(agent, intake, installed, TRAINMASTER_PRELOAD="heavy")
    (said,) = witness.wait(what="imported")
    assert said["where"] != said["pid"]
    assert said["variable"] is None


def test_it_can_be_switched_off(agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed) -> None:
    begin(agent, intake, installed, TRAINMASTER_PRELOAD="")
    witness.wait(what="imported")
    assert not [*Path(installed.variables["PYTHONPATH"]).rglob("*.imports")]
