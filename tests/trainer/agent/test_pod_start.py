"""The first program of a pod: the agent starts whatever the user's variables say, and the ranks get them all."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainmaster.api.generate import ROOT
from trainmaster.cluster import manifests
from trainmaster.cluster.container import CODE_IN_IMAGE, PYTHON_IN_IMAGE
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import start

from tests.builders import a_job
from tests.trainer.agent.intake import Intake
from tests.trainer.agent.machine import AgentProcess, Witness, ours, wait_gone

SETTINGS = manifests.PodSettings("http://10.96.0.7:8080", "trainer:1")
SOURCE = ROOT / "trainer" / "trainmaster_trainer" / "agent" / "start.py"
W0 = ("worker", 0)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Our code, as images/trainer/Dockerfile lays it down."""
    folder = tmp_path / "lib"
    for source in (ROOT / "operator" / "trainmaster", ROOT / "trainer" / "trainmaster_trainer"):
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def in_a_pod(tmp_path: Path, intake: Intake, library: Path) -> Iterator[AgentProcess]:
    """An agent with the command line of a pod, not yet started."""
    script = tmp_path / "tell.py"
    shutil.copy(ROOT / "tests" / "trainer" / "agent" / "scripts" / "tell.py", script)
    shutil.copy(ROOT / "tests" / "trainer" / "agent" / "scripts" / "witness.py", tmp_path)
    one = AgentProcess(tmp_path, intake, TrainingPlan("OneDevice", command=("python3", str(script))))
    one.command = a_command(library)
    before = set(ours())
    yield one
    one.end()
    assert all(wait_gone(pid) for pid, name in ours().items() if pid not in before and name != "tm-standby")


def a_command(library: Path) -> tuple[str, ...]:
    """The command line of a pod, with the places that images/trainer/Dockerfile names on this machine."""
    python, *options = the_container()["command"]
    assert python == PYTHON_IN_IMAGE
    return (sys.executable, *(option.replace(CODE_IN_IMAGE, str(library)) for option in options))


def the_container(**variables: str) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    pod = manifests.pod(a_job().with_workers(1, env=env).build(), names.WORKER, 0, 0, SETTINGS)
    return dict(pod["spec"]["containers"][0])


def handed_over(**variables: str) -> dict[str, str]:
    """The variables of the user as the pod has them."""
    listed = the_container(**variables)["env"]
    return {one["name"]: one["value"] for one in listed if one["name"].startswith(names.ENV_OF_THE_USER)}


def test_the_agent_starts_and_the_ranks_have_the_users_variables(
    in_a_pod: AgentProcess, intake: Intake, witness: Witness, tmp_path: Path, library: Path
) -> None:
    own = tmp_path / "src"
    own.mkdir()
    (own / "torch.py").write_text("raise ModuleNotFoundError('no torch in this image')")  # importing it takes seconds
    path = f"{own}{os.pathsep}{tmp_path}"  # PYTHONSAFEPATH takes the script's own folder away
    mine = {"PYTHONPATH": path, "PATH": "/nowhere", "LD_LIBRARY_PATH": "/nowhere", "HOME": "/nowhere/home"}
    mine |= {"PYTHONSAFEPATH": "1", "PYTHONSTARTUP": "/nowhere.py", "LD_PRELOAD": "/nowhere.so"}
    strangers = {names.ENV_WARM_SOCKET: "/nowhere", names.ENV_FAULTS: "/nowhere", "PYTHONHOME": ""}
    in_a_pod.start(**handed_over(**mine), **strangers, USER="")
    intake.wait_state(AgentState.WAITING, 0, W0)
    intake.run(1, [(W0, 1)])
    (world,) = witness.wait(what="world")
    intake.wait_state(AgentState.FINISHED, 1, W0)
    given = world["environment"]
    ours = f"{library / 'trainmaster_trainer/agent/python_start'}{os.pathsep}{library}"  # the first: decision 0223
    assert {name: given[name] for name in mine} == {**mine, "PYTHONPATH": f"{ours}{os.pathsep}{path}"}
    assert [name for name in given if name.startswith(names.ENV_OF_THE_USER)] == []
    assert names.ENV_FAULTS not in given


@pytest.mark.parametrize("variables", [{}, {"PYTHONPATH": "HERE"}, {"PYTHONHOME": "/nowhere"}, {"PATH": "/nowhere"}])
def test_a_users_modules_and_variables_are_not_the_agents(
    tmp_path: Path, library: Path, variables: dict[str, str]
) -> None:
    """It starts in the folder of the user's, where a `random.py` may lie; a ConfigMap may bring any variable."""
    (tmp_path / "random.py").write_text("raise SystemExit('the user has one, too')")
    given = {name: value.replace("HERE", str(tmp_path)) for name, value in variables.items()}
    ended = subprocess.run(a_command(library), cwd=tmp_path, env=given, stderr=subprocess.PIPE, text=True, check=False)
    assert f"trainmaster agent: the environment variable {names.ENV_TRAINING} is missing" in ended.stderr
    assert ended.returncode == names.EXIT_BAD_CONFIGURATION


def test_a_python_that_the_users_variables_break_is_named_with_them(in_a_pod: AgentProcess) -> None:
    """The agent lives; what ranks would be forked from cannot begin."""
    in_a_pod.start(**handed_over(PYTHONHOME="/nowhere"))
    assert in_a_pod.wait() == names.EXIT_NO_WARM_PARENT
    last = [line for line in in_a_pod.text.splitlines() if "has died" in line]
    assert last[0].endswith("Are these variables right: PYTHONHOME?")


def test_what_libraries_expect_is_set_where_nobody_set_it(tmp_path: Path) -> None:
    given = {"HOME": "/root-of-another", "PYTHONPATH": "/from/a/config/map"}
    start.give_back(given)
    library = str(Path(start.__file__).parents[2])
    assert given == {
        "HOME": "/tmp",  # noqa: S108
        "USER": "trainmaster",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": f"{library}{os.pathsep}/from/a/config/map",
    }
    given = {"HOME": str(tmp_path), "USER": "me", "PYTHONUNBUFFERED": ""}
    start.give_back(given)
    assert (given["HOME"], given["USER"], given["PYTHONUNBUFFERED"]) == (str(tmp_path), "me", "")


def test_an_old_python_is_told_in_one_sentence() -> None:
    """The same sentence that Python 3.6 to 3.8 print, which are not on every machine that runs this test."""
    pretend = "import sys; sys.version_info = (3, 8, 18); sys.version = '3.8.18 (main)'; "
    run = f"import runpy; runpy.run_path({str(SOURCE)!r}, run_name='__main__')"
    ended = subprocess.run([sys.executable, "-I", "-c", pretend + run], capture_output=True, text=True, check=False)
    assert ended.returncode == names.EXIT_BAD_CONFIGURATION == start._BAD_CONFIGURATION
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("The image has Python 3.8.18 (")
    assert "the agent needs Python 3.9 or newer" in line


def test_any_python_3_can_read_the_first_program() -> None:
    """A syntax error would hide the sentence."""
    ast.parse(SOURCE.read_text(), feature_version=(3, 5))
