"""Ranks of later attempts find imported what the first one imported; unless that could be told apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from trainmaster.wire import messages, names

from tests.agent.conftest import MakeAgent
from tests.agent.intake import Intake
from tests.agent.machine import Witness, ours

W0 = ("worker", 0)
HEAVY = """
import os
PID, VARIABLE = os.getpid(), os.environ.get("HEAVY")
from heavy import a0
"""
# Each imports the next one: 25 are worth learning.
MODULES = {f"a{number}": f"from heavy import a{number + 1}\n" for number in range(24)}


class Installed:
    """A Python with the package `heavy` among those that are installed."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", symlinks=True)
        self.python = str(folder / "venv" / "bin" / "python")
        (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
        ours = next(path for path in sys.path if path.endswith("site-packages"))
        (site / "rest.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        self.package = site / "heavy"
        self.package.mkdir()
        (self.package / "__init__.py").write_text(HEAVY)
        for name, text in {**MODULES, "a24": "", "never": "raise SystemExit"}.items():
            (self.package / f"{name}.py").write_text(text)
        (folder / "torch.py").write_text("raise ModuleNotFoundError('no torch in this image')")
        self.variables = {names.ENV_WARM_SOCKET: "", "PYTHONPATH": str(folder)}

    def repeat(self, *lines: list[object]) -> str:
        """What is against importing these in another process; nothing: they are imported."""
        text = (
            "import sys, json; from trainmaster_trainer.agent import imports\n"
            "try: imports.repeat(sys.argv[1:], ['RANK'])\n"
            "except imports.ChangedError as error: print(error)"
        )
        command = [self.python, "-c", text, *map(json.dumps, lines)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


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
    intake.wait_state(messages.FAILED, attempt, W0)
    intake.run(attempt + 1, [(W0, 1)])
    witness.wait(attempt + 1, what="imported")


def begin(agent: MakeAgent, intake: Intake, installed: Installed, *arguments: str, **variables: str) -> None:
    agent("python", "SCRIPTS/imports.py", *arguments, python=installed.python, **installed.variables | variables)
    intake.wait_state(messages.WAITING, 0, W0)
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
    found = [line for line in lines if str(line).startswith(("heavy", "own", "witness"))]
    assert found == ["heavy", *(f"heavy.a{number}" for number in range(25))]


def test_a_branch_that_is_killed_takes_its_ranks_along(
    agent: MakeAgent, intake: Intake, witness: Witness, installed: Installed
) -> None:
    begin(agent, intake, installed)
    witness.wait(what="imported")
    branch = until_branched()
    fail(intake, witness, 1)
    os.kill(branch, signal.SIGKILL)
    (heartbeat,) = intake.wait_state(messages.FAILED, 2, W0)
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
    intake.wait_state(messages.FAILED, 2, W0)
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


TOLD_APART = {
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()": "leaves a thread behind",
    "import os; os.environ.get('RANK')": "asks for RANK while it is imported",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)": "leaves a handler of a signal behind",
    "import subprocess; CHILD = subprocess.Popen(['sleep', '9'])": "leaves a child behind",
    "FILE = open('/dev/null')": "leaves an open file behind",
    "import mmap; SHARED = mmap.mmap(-1, 4096)": "leaves shared memory behind",
    "import os; os.chdir('/')": "leaves another working directory behind",
    "raise SystemExit(3)": "heavy cannot be imported: SystemExit: 3",
    "1 / 0": "heavy cannot be imported: ZeroDivisionError: division by zero",
    "import nothing_of_this_name": "",
    "import os; os.environ.get('HOME')": "",
}


@pytest.mark.parametrize("text", TOLD_APART)
def test_what_a_rank_could_tell_apart_is_left_to_it(installed: Installed, text: str) -> None:
    path = installed.package / "__init__.py"
    path.write_text(text)
    said = installed.repeat(["heavy", str(path)])
    assert said.removeprefix("something ") == TOLD_APART[text]


def test_a_module_of_another_place_is_not_run(installed: Installed) -> None:
    (installed.package / "__init__.py").write_text("raise SystemExit(3)")
    assert " and was at /elsewhere/heavy.py" in installed.repeat(["heavy", "/elsewhere/heavy.py"])


def test_what_opens_devices_is_the_ranks_own_affair(installed: Installed) -> None:
    assert installed.repeat(["torch_xla", ""]) == "torch_xla belongs to its rank alone"
