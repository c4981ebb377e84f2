"""MPI without sshd: mpirun on the first worker reaches the others through their agents."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.frameworks.jobs import a_job, line_of_the_ledger, python, running, said, until
from tests.local.command import Command


def an_mpirun(processes: int, script: str, **env: str) -> dict[str, Any]:
    """A job of mpirun with so many processes, as evenly over the workers as can be."""
    launcher = str(Path(python("mpi")).with_name("mpirun"))
    command = [launcher, "-np", str(processes), "--map-by", "node", python("mpi"), script]
    return a_job("MPI", command, **env)


def test_the_sum_is_over_processes_of_all_replicas_also_after_a_death(command: Command) -> None:
    """With two slots in each of two replicas. The job ends with mpirun, although the others serve for ever."""
    job = an_mpirun(4, "mpi_sum.py", DIE_IN_ATTEMPT="1")
    job["spec"]["workers"]["cpu"] = 2
    assert command.start(job).end() == 0
    assert said(command, "RIGHT") == ["processes=4 total=10 replicas=0,0,1,1"]
    assert command.status["message"].startswith("worker-0, which leads the others, finished.")
    assert line_of_the_ledger(command)["replica"] == "worker-0 rank 0"


def test_a_script_that_fails_has_its_own_error_as_evidence(command: Command, folder: Path) -> None:
    (folder / "wrong.py").write_text("raise ValueError('bad learning rate')")
    assert command.start(an_mpirun(2, "wrong.py")).end() == 1
    status = command.status
    assert status["phase"] == "Failed"
    assert "ValueError: bad learning rate" in status["restarts"][-1]["evidence"]


def test_a_launcher_that_is_not_there_is_named(command: Command) -> None:
    assert command.start(a_job("MPI", ["/nowhere/mpirun", "-np", "2", "a.out"])).end() == 1
    assert "No such file or directory: /nowhere/mpirun" in command.status["message"]
    assert command.status.get("restartCount", 0) == 0


def test_a_launcher_that_is_killed_leaves_no_files(command: Command, folder: Path) -> None:
    """Open MPI's daemons and processes have folders of their own, which they cannot remove when they are killed."""
    (folder / "tmp").mkdir()
    job = an_mpirun(2, "mpi_sum.py", GATE="gate", TMPDIR=str(folder / "tmp"))
    command.start(job)
    until(lambda: bool(said(command, "RIGHT")))
    (launcher,) = running(command, "--map-by")
    os.kill(launcher, signal.SIGKILL)
    command.until_event("Restarting")
    (folder / "gate").touch()
    assert command.end() == 0
    assert not [*(folder / "tmp").iterdir()]
