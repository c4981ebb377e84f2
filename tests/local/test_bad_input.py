"""Whatever is wrong ends in a clear error with its cure: never a hang, never a traceback of ours."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainmaster.cli.logs import logging_to
from trainmaster.cli.views import JsonView
from trainmaster.local.workdir import Workdir, WorkdirError

from tests.local.command import BIN, Command, a_job, a_script
from tests.local.command import TASKS as TASKS_FOLDER

# Files that are no job: the text, and what the error must say.
FILES = {
    "broken YAML": ("spec: {strategy: [", ["job.yaml:1"]),
    "empty": ("", ["empty", "kind: TrainingJob"]),
    "another kind": ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", ["no TrainingJob", "Pod"]),
    "unknown field": (json.dumps(a_job(worker={"replicas": 2})), ["spec.worker", "workers"]),
    "wrong type": (json.dumps(a_job(workers={"replicas": "many"})), ["spec.workers.replicas"]),
    "no steps": (json.dumps(a_job(training={"task": "small:Small"})), ["spec.training.steps"]),
    "name too long": (json.dumps(a_job() | {"metadata": {"name": "n" * 60}}), ["metadata.name", "shorter"]),
    "strategy and devices": (
        json.dumps(a_job(strategy={"type": "OneDevice"}, workers={"replicas": 4})),
        ["OneDevice", "spec."],
    ),
}


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_job_is_refused_with_line_and_cure(command: Command, text: str, words: list[str]) -> None:
    """Exit code 2, before anything is started."""
    path = command.folder / "job.yaml"
    path.write_text(text)
    assert command.start(path).end() == 2
    assert not [word for word in words if word not in command.stderr], command.stderr
    assert "Traceback" not in command.stderr
    assert not command.workdir.exists()


def test_a_file_that_is_not_there(command: Command) -> None:
    """Says which."""
    assert command.start(command.folder / "nothing.yaml").end() == 2
    assert "nothing.yaml: no such file" in command.stderr


def test_a_path_that_cannot_be_looked_at(command: Command) -> None:
    """A name that is too long, as of a job's text in the place of its file."""
    assert command.start(Path("x" * 5000)).end() == 2
    assert "file name too long" in command.stderr
    assert "Traceback" not in command.stderr


def test_a_workdir_that_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS without a lock daemon, which is not to be had here: what the kernel says then."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(WorkdirError, match=r"no locks available.*another file system"), Workdir(tmp_path / "run"):
        pass


def test_a_folder_instead_of_a_file(command: Command) -> None:
    """Is no file to read."""
    assert command.start(command.folder).end() == 2
    assert "is a directory" in command.stderr


LIKE_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
needs_setpriv = pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="root reads everything, and setpriv takes that away"
)


@needs_setpriv
def test_a_file_without_read_permission(command: Command) -> None:
    """Also where we are root."""
    path = command.folder / "job.yaml"
    path.write_text(json.dumps(a_job()))
    path.chmod(0)
    assert command.start(path, prefix=LIKE_ANYBODY).end() == 2
    assert "permission denied" in command.stderr


@needs_setpriv
def test_folders_of_runs_that_are_somebody_elses(command: Command) -> None:
    """A project that is shared: the cure is a folder of one's own."""
    (command.folder / ".trainmaster").mkdir(mode=0)
    assert command.start(a_job(), "--workdir", "", prefix=LIKE_ANYBODY).end() == 2
    assert command.stderr == "trainmaster run: .trainmaster: permission denied; name another folder by --workdir\n"


@pytest.mark.parametrize("workdir", ["/proc/nothing", "job.yaml"], ids=["not writable", "a file"])
def test_a_workdir_that_cannot_be_used(command: Command, workdir: str) -> None:
    """Says that it is about --workdir."""
    assert command.start(a_job(), "--workdir", workdir).end() == 2
    assert f"--workdir {workdir}" in command.stderr
    assert "Traceback" not in command.stderr


def test_a_queue_is_not_there_yet(command: Command) -> None:
    """The field, and the cure; the same when it is tried again."""
    for _ in range(2):
        assert command.start(a_job(scheduling={"gang": "Kueue", "queue": "team-a"})).end() == 2
        assert "job.yaml: spec.scheduling.gang: this version of Trainmaster does not have gangs" in command.stderr
        assert "remove gang and queue" in command.stderr
        assert not command.workdir.exists()


def _task(reference: str, **arguments: Any) -> dict[str, Any]:
    return {"task": reference, "arguments": arguments, "steps": 5, "globalBatchSize": 8}


# What `training` says, and what the message must say. Nothing of it would get better by a restart.
TASKS = {
    "no such module": (_task("smal:Small"), ["spec.training.task", "smal"]),
    "no such class": (_task("small:Smal"), ["spec.training.task", "Small"]),
    "not a Task": (_task("broken:Other"), ["spec.training.task", "trainmaster_trainer.task.Task"]),
    "wrong argument": (_task("small:Small", widht=3), ["spec.training.arguments.widht", "width"]),
    "missing argument": (_task("broken:Needs"), ["spec.training.arguments.word"]),
    "syntax error": (_task("crooked:Task"), ["crooked", "line 1"]),
    "missing library": (_task("needy:Task"), ["nothing_of_this_name"]),
    "no such script": ({"command": ["python", "gone.py"]}, ["gone.py"]),
    "no such command": ({"command": ["trainmore", "fast"]}, ["trainmore"]),
    "no such module to run": ({"command": ["python", "-m", "gone"]}, ["gone"]),
    "no such folder": (
        {"command": ["python", "gone.py"], "workingDirectory": "/nowhere"},
        ["workingDirectory", "/nowhere"],
    ),
}


@pytest.mark.parametrize(("training", "words"), TASKS.values(), ids=TASKS)
def test_what_cannot_run_ends_the_job_at_once(command: Command, training: dict[str, Any], words: list[str]) -> None:
    """One attempt, the message once, no traceback."""
    broken = "from trainmaster_trainer.task import Task\nclass Other: ...\nclass Needs(Task):\n"
    broken += "    def __init__(self, word): ...\n    model = dataset = loss = optimizer = None\n"
    (command.folder / "broken.py").write_text(broken)
    (command.folder / "crooked.py").write_text("class Task(:\n")
    (command.folder / "needy.py").write_text("import nothing_of_this_name\n")
    assert command.start(a_job(workers=1, training=training), "--output", "text").end() == 1
    status = command.status
    assert (status["reason"], status["attempt"]) == ("BadConfiguration", 1)
    assert not [word for word in words if word not in status["message"]], status["message"]
    assert command.text.count(status["message"]) == 1
    assert not [word for word in ("Traceback", "Error:", "trainmaster_trainer/") if word in command.text]


def test_a_task_that_raises_on_import_shows_its_traceback_once(command: Command) -> None:
    """It is the user's own code, so they see where."""
    (command.folder / "stormy.py").write_text("def blow():\n    raise OSError('storm')\nblow()\n")
    assert command.start(a_job(training=_task("stormy:Task")), "--output", "text").end() == 1
    assert "OSError: storm" in command.status["message"]
    assert command.text.count("in blow") == 3  # the restart's line, the last line, and the traceback
    assert command.text.count("Traceback (most recent call last):") == 1


def test_a_script_that_exits_with_a_code_is_restarted_within_its_budget(command: Command) -> None:
    """And its own words are on the terminal."""
    text = "import sys\nprint('I cannot go on', flush=True)\nsys.exit(3)\n"
    job = a_script(text, command.folder, failurePolicy={"maxRestarts": 1})
    assert command.start(job, "--output", "text").end() == 1
    assert command.text.count("I cannot go on") == 2
    assert "exit code 3" in command.status["message"]
    assert "spec.failurePolicy.maxRestarts" in command.status["message"]


@pytest.mark.parametrize(("workers", "cure"), [({"replicas": 1}, "set spec"), ({"replicas": 1, "gpus": 1}, "lower it")])
def test_a_gpu_that_is_not_there_ends_a_script_at_once(command: Command, workers: dict[str, int], cure: str) -> None:
    """And not after restarts with pauses, as of a node whose device is broken."""
    job = a_script("import torch\ntorch.ones(1).to('cuda')\n", command.folder, workers=workers)
    assert command.start(job, CUDA_VISIBLE_DEVICES="").end() == 1
    assert command.status["reason"] == "BadConfiguration"
    assert "spec.workers.gpus" in command.status["message"]
    assert cure in command.status["message"]


def test_the_last_words_of_another_worker_are_shown_too(command: Command) -> None:
    """A program that is not Python leaves no error report, and only the first worker's lines are on the terminal."""
    shell = 'if [ "$RANK" = 1 ]; then echo out of milk; exit 4; fi; sleep 600'
    job = a_job(training={"command": ["sh", "-c", shell]}, failurePolicy={"maxRestarts": 0})
    assert command.start(job, "--output", "text").end() == 1
    assert "out of milk" in command.text
    assert "logs/small-worker-1-0.log" in command.text


def test_an_environment_that_no_process_can_be_started_with_ends_the_job(own_command: Command) -> None:
    """The shell's is large and so is the job's; each alone would do."""
    variables = [{"name": f"OURS{number}", "value": "x" * 8000} for number in range(25)]
    usual = ("sh", "-c", 'ulimit -Ss 8192; exec "$@"', "sh")  # a quarter of the stack is for variables
    shell = {f"SHELL{number}": "x" * 120_000 for number in range(16)}
    job = a_job(workers={"replicas": 1, "env": variables})
    assert own_command.start(job, prefix=usual, **shell).end() == 1
    status = own_command.status
    assert (status["phase"], status["reason"]) == ("Failed", "BadConfiguration")
    assert "cannot be started: argument list too long" in status["message"]
    assert "spec.workers.env" in status["message"]


def test_a_command_line_that_is_wrong(command: Command) -> None:
    """The same exit code as for an invalid job."""
    path = command.folder / "job.yaml"
    assert command.start(path, "--fast").end() == 2
    assert "--fast" in command.stderr


def test_other_systems_than_linux_are_refused_with_a_way_that_works(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps(a_job()))
    elsewhere = f"import sys; sys.path[0] = ''; sys.platform = 'darwin'; sys.exit(main(['run', '{tmp_path}/job.yaml']))"
    command = [sys.executable, "-c", f"from trainmaster.cli.main import main; {elsewhere}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("trainmaster run needs Linux: ")
    assert "docker run" in ended.stderr


def test_output_that_cannot_be_written_is_no_success() -> None:
    """A file that is not whole would be taken for one that is."""
    with Path("/dev/full").open("w") as full:
        run = subprocess.run([BIN, "crd"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "trainmaster: standard output: no space left on device\n")


def test_input_that_cannot_be_read_is_said_without_a_traceback() -> None:
    """The first page of memory is nobody's."""
    with Path("/proc/self/mem").open("rb") as memory:
        run = subprocess.run([BIN, "explain", "-"], stdin=memory, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (2, "trainmaster: input/output error\n")


def test_a_machine_without_files_to_spare_is_said_without_a_traceback(tmp_path: Path) -> None:
    """No folder can be made, in memory or elsewhere."""
    none_left = "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    text = "import importlib.util, resource, sys; from trainmaster.cli import main, run; "
    text += f"importlib.util.find_spec('torch'); {none_left}; sys.exit(main.main(['run', sys.argv[1]]))"
    command = [sys.executable, "-c", text, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("trainmaster run: no usable temporary directory found")
    assert len(run.stderr.splitlines()) == 1


def test_a_log_that_cannot_be_written_is_done_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What there is to say is said all the same."""
    with logging_to(tmp_path / "nowhere" / "trainmaster.log", JsonView()):
        logging.getLogger("trainmaster.loop").warning("a moment of trouble")
    assert json.loads(capsys.readouterr().out)["event"]["message"] == "a moment of trouble"


def test_help_says_what_exit_codes_mean(command: Command) -> None:
    """Whoever asks gets an answer."""
    assert command.start(Path("--help"), "--output", "text").end() == 0
    assert "Exit codes" in command.text
    assert "--workdir" in command.text


@pytest.mark.parametrize("way", ["os._exit", "sys.exit"])
def test_a_rank_that_leaves_before_its_work_is_done_is_no_success(command: Command, way: str) -> None:
    """Exit code 0 or not."""
    shutil.copy(TASKS_FOLDER / "odd_ends.py", command.folder)
    training = {"task": "odd_ends:Leaves", "arguments": {"way": way}, "steps": 10, "globalBatchSize": 8}
    job = a_job(training=training, failurePolicy={"maxRestarts": 0})
    assert command.start(job).end() == 1
    assert "EndedEarly: exit code 0 before its training was over" in command.status["message"]


@pytest.mark.parametrize(("raise_at", "code"), [(0, 0), (3, 1)])
def test_a_thread_that_a_task_forgets_holds_nobody_back(command: Command, raise_at: int, code: int) -> None:
    """At a good end and at a bad one, where the others are not waited for."""
    shutil.copy(TASKS_FOLDER / "odd_ends.py", command.folder)
    training = {"task": "odd_ends:Lingers", "arguments": {"raise_at": raise_at}, "steps": 10, "globalBatchSize": 8}
    job = a_job(training=training, failurePolicy={"maxRestarts": 0})
    assert command.start(job, "--output", "text").end() == code
    assert code or "threads that still run are left: endless" in command.text


def test_a_pool_without_work_is_not_waited_for(command: Command) -> None:
    """As Python itself ends one."""
    shutil.copy(TASKS_FOLDER / "odd_ends.py", command.folder)
    training = {"task": "odd_ends:Pools", "steps": 10, "globalBatchSize": 8}
    assert command.start(a_job(training=training), "--output", "text").end() == 0
    assert "threads that still run" not in command.text
