"""Scripts of JAX, XGBoost and LightGBM as real groups: right numbers, deaths, trackers, two jobs at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from trainmaster.api.generate import ROOT
from trainmaster_trainer.agent import companions

from tests.frameworks.jobs import a_job, line_of_the_ledger, of_a_taken_port, python, running, said, until
from tests.local.command import Command, wait_gone


def test_jax_finds_its_group_and_is_right_after_a_death(command: Command) -> None:
    """`initialize()` has no arguments. One of the processes is killed in the middle."""
    job = a_job("JAX", [python("jax"), "jax_sgd.py"], JAX_PLATFORMS="cpu", DIE_IN_ATTEMPT="1")
    assert command.start(job).end() == 0
    assert said(command, "RIGHT") == ["processes=2 total=3"] * 2
    line = line_of_the_ledger(command)
    assert (line["class"], line["exit"], line["replica"]) == ("Signal", "SIGKILL", "worker-1 rank 1")


TAKEN_APART = """
import gc, sys, types
from trainmaster_trainer.agent import process, teardown
gc.freeze()
teardown.begin()
main = sys.modules["__main__"] = types.ModuleType("__main__")
exec("import jax, jax.numpy as jnp; x = jax.jit(lambda a: a * 2)(jnp.ones(3)); print(x)", main.__dict__)
process.leave(0)
"""


def test_a_rank_that_imported_jax_can_be_taken_apart() -> None:
    """At its end a forked rank takes its program's modules apart; types of jaxlib are empty then."""
    variables = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'trainer'}"}
    done = subprocess.run(
        [python("jax"), "-c", TAKEN_APART], env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[2. 2. 2.]\n"), done.stderr


def test_a_framework_that_is_not_there_ends_the_job_with_its_own_words(command: Command) -> None:
    job = a_job("JAX", [python("boost"), "jax_sgd.py"])
    assert command.start(job).end() == 1
    status = command.status
    assert (status["phase"], status.get("restartCount", 0)) == ("Failed", 0)
    assert "No module named 'jax'" in status["message"]
    assert line_of_the_ledger(command)["class"] == "Configuration"


@pytest.mark.parametrize("framework", ["Torch", "LightGBM"])
def test_a_script_of_another_framework_ends_the_job_though_it_is_there(command: Command, framework: str) -> None:
    """Each process would train alone, and end with 0: a job that has succeeded with two models."""
    assert command.start(a_job(framework, [python("boost"), "trees_alone.py"])).end() == 1
    status = command.status
    assert (status["phase"], status.get("restartCount", 0)) == ("Failed", 0)
    told = f"training.framework: trees_alone.py imports XGBoost and not {framework}, so its 2 processes would not train"
    assert told in status["message"]
    assert "set it to XGBoost" in status["message"]
    assert line_of_the_ledger(command)["class"] == "Configuration"
    assert said(command, "ALONE") == []


def test_one_worker_may_train_by_what_it_likes(command: Command) -> None:
    assert command.start(a_job("LightGBM", [python("boost"), "trees_alone.py"], 1)).end() == 0
    assert said(command, "ALONE") == ["2"]


def test_xgboost_goes_on_from_its_own_file_with_the_trees_of_one_process(command: Command) -> None:
    """One of the processes dies at round 12."""
    job = a_job("XGBoost", [python("boost"), "xgboost_trees.py"], DIE_IN_ATTEMPT="1")
    assert command.start(job).end() == 0
    assert said(command, "RIGHT") == ["processes=2 total=3 from=10"] * 2
    assert line_of_the_ledger(command)["exit"] == "SIGKILL"


def test_a_tracker_that_dies_is_named_and_the_group_begins_again(command: Command, folder: Path) -> None:
    job = a_job("XGBoost", [python("boost"), "xgboost_trees.py"], GATE="gate")
    command.start(job)
    until(lambda: len([*folder.glob("rank-*")]) == 2)
    (tracker,) = running(command, "RabitTracker")
    os.kill(tracker, signal.SIGKILL)
    assert wait_gone(tracker)
    command.until_event("Restarting")
    (folder / "gate").touch()
    assert command.end() == 0
    assert said(command, "RIGHT") == ["processes=2 total=3 from=0"] * 2
    line = line_of_the_ledger(command)
    assert "XGBoost's tracker ended by SIGKILL before the training was over" in line["evidence"]
    assert line["class"] == "PeerLost"


def test_a_tracker_that_cannot_start_ends_the_job_with_the_reason(command: Command) -> None:
    job = a_job("XGBoost", [python("jax"), "-c", "import time; time.sleep(600)"])
    assert command.start(job).end() == 1
    assert "No module named 'xgboost'" in command.status["message"]
    assert command.status.get("restartCount", 0) == 0


def test_a_trackers_port_that_is_taken_is_said() -> None:
    assert companions.last_told(of_a_taken_port("XGBoost", "boost").splitlines()).endswith("Address already in use")


def test_a_program_that_serves_for_ever_ends_by_the_jobs_deadline(command: Command) -> None:
    """Under AllReduce nobody's end is the end of the others; what takes no steps is not seen to hang."""
    job = a_job("TensorFlow", ["python", "-c", "import signal; print('SERVES', 1, flush=True); signal.pause()"])
    job["spec"]["activeDeadlineSeconds"] = 5
    assert command.start(job).end() == 1
    assert command.status["phase"] == "Failed"
    assert "activeDeadlineSeconds" in command.status["message"]
    until(lambda: not command.processes())


def test_two_jobs_of_one_framework_at_once_do_not_meet(command: Command, tmp_path_factory: object) -> None:
    """LightGBM listens on a port in each process, and has the same model in all of a job, also after a death."""
    other = Command(command.folder, command._warm)
    other.workdir = command.folder / "other"
    script = [python("boost"), "lightgbm_trees.py"]
    command.start(a_job("LightGBM", script, DIE_IN_ATTEMPT="1"))
    path = command.folder / "other.yaml"
    path.write_text(json.dumps(a_job("LightGBM", script) | {"metadata": {"name": "other"}}))
    other.start(path)
    assert (command.end(), other.end()) == (0, 0)
    assert line_of_the_ledger(command)["exit"] == "SIGKILL"
    assert other.status.get("restartCount", 0) == 0
    for one in (command, other):
        first, second = said(one, "RIGHT")
        assert first == second
        assert first.startswith("machines=2 ")
