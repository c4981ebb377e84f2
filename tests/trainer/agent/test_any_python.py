"""Steps of programs that the rank's own Python does not run: of a shell, another environment, torch.multiprocessing."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from trainmaster.wire import names
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster_trainer.agent import any_python

from tests.ports import free_port
from tests.trainer.agent.machine import Line

Outcome = tuple[ProgressPage, str]
Run = Callable[..., Outcome]
START = Path(any_python.START_FOLDER, "sitecustomize.py")
LOOP = """
import os, sys, torch
def train(place, steps, together=None):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.{kind}(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    if together:
        together.wait()
"""
SPAWNING = """
import torch.multiprocessing as mp
if __name__ == "__main__":
    os.environ["RANK"] = os.environ["WORLD_SIZE"] = "7"
    for _ in "1":  # not told before a step, as it is not plain
        # One that ends before another has begun leaves the count to it, as one program after the other does.
        together = mp.get_context("{way}").Barrier({processes})
        mp.start_processes(train, args=(3, together), nprocs={processes}, start_method="{way}")
"""


@pytest.fixture
def run(line: Line, tmp_path: Path) -> Run:
    """Run a command as a rank of a script; its page then, and what it said."""

    def as_rank(*words: str, **variables: str) -> Outcome:
        path = tmp_path / "rank-0.progress"
        file = ProgressFile(str(path), create=True, attempt=1)
        of_the_rank = {
            names.ENV_PROGRESS_FILE: str(path),
            names.ENV_ATTEMPT: "1",
            names.ENV_CHECKPOINTS: str(tmp_path / "checkpoints"),
        }
        ended = line.run(tmp_path, words, **of_the_rank, **variables)
        assert ended.code == 0, ended.errors
        return file.read(), ended.output + ended.errors

    return as_rank


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The Python of an environment that has torch, and does not have Trainmaster."""
    folder = tmp_path / "venv"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    (modules,) = (folder / "lib").glob("python*/site-packages")
    (modules / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))
    python = folder / "bin" / "python"
    alone = subprocess.run([python, "-c", "import trainmaster"], capture_output=True, cwd=tmp_path, check=False)
    assert b"No module named" in alone.stderr
    return python


def test_programs_of_a_shell_in_any_environment_are_counted_one_after_another(
    run: Run, tmp_path: Path, foreign: Path
) -> None:
    """What the second one counts and reports comes after the steps of the first: STEP does not go backwards."""
    (tmp_path / "first.py").write_text(
        "from trainmaster_trainer import session\nfor step in range(1, 6):\n    session.report(step=step, loss=2)\n"
    )
    (tmp_path / "second.py").write_text(
        LOOP.format(kind="Adam")
        + "from trainmaster_trainer import session\ntrain(0, 3)\nsession.report(step=3, total=4, loss=0.5)\n"
        + "train(0, 1)\nsession.report(step=4, loss=0.25)\n"
    )
    page, said = run("bash", "-c", f"cd . && {sys.executable} first.py && {foreign} second.py")
    assert said == ""
    assert (page.step, page.total_steps, page.loss, page.resumed_step) == (9, 9, 0.25, 1)
    assert page.earlier_steps == 5
    lines = (tmp_path / "checkpoints" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 8, 9]


ACTIVE = {"VIRTUAL_ENV": True, "CONDA_PREFIX": True, "CONDA_PREFIX CONDA_DEFAULT_ENV": False, "": False}


def test_python_is_that_of_an_active_environment_and_torchrun_of_its_own(
    run: Run, tmp_path: Path, foreign: Path
) -> None:
    """What conda activates in every shell, `base`, is not meant, nor is what PATH alone names."""
    (tmp_path / "train.py").write_text("import sys\nprint('by', sys.prefix)\n")
    (foreign.parent / "torchrun").touch(mode=0o755)
    theirs = str(foreign.parents[1])
    none = dict.fromkeys(("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"), "")
    path = f"{foreign.parent}:{os.environ['PATH']}"
    for active, is_meant in ACTIVE.items():
        values = {name: "base" if name == "CONDA_DEFAULT_ENV" else theirs for name in active.split()}
        for words in ("python", "python3 -m torch.distributed.run"):
            _, said = run(*words.split(), "train.py", **{**none, **values, "PATH": path})
            assert f"by {theirs if is_meant else sys.prefix}\n" in said, (active, words)
    for words in ("torchrun", f"{foreign} -m torch.distributed.run"):
        assert f"by {theirs}\n" in run(*words.split(), "train.py", **{**none, "PATH": path})[1]


def test_python_in_a_shell_is_ours_unless_that_of_path_has_a_framework(run: Run, tmp_path: Path, foreign: Path) -> None:
    """Who runs `.venv/bin/trainmaster` without activating it has the system's Python in PATH, which has no torch."""
    (tmp_path / "train.py").write_text("import sys\nprint('by', sys.prefix)\n")
    path = f"{foreign.parent}:/usr/bin:/bin"
    for words in (("sh", "-c", "python train.py"), ("env", "nice", "python3", "train.py")):
        assert run(*words, PATH=path)[1] == f"by {foreign.parents[1]}\n"
    next(foreign.parents[1].rglob("torch.pth")).unlink()
    for words in (("sh", "-c", "python train.py"), ("env", "nice", "python3", "train.py")):
        for where in (path, "/usr/bin:/bin"):
            assert run(*words, PATH=where)[1] == f"by {sys.prefix}\n"


@pytest.mark.parametrize(("way", "ranks", "told"), [("spawn", 1, 0), ("fork", 2, 1)])
def test_processes_of_torch_multiprocessing_are_counted_and_of_several_ranks_said_to_be_apart(
    run: Run, tmp_path: Path, way: str, ranks: int, told: int
) -> None:
    """Each rank would have a group of its own. That is said once, by whichever of its processes finds it first."""
    (tmp_path / "train.py").write_text(LOOP.format(kind="SGD") + SPAWNING.format(way=way, processes=ranks))
    page, said = run("python", "train.py", WORLD_SIZE=str(ranks))
    assert page.step == 3
    assert said.count(f"each of the {ranks} ranks starts training processes of its own") == told
    assert said.count("without torch.multiprocessing.spawn") == told


SHOWN = """
import os, sys
print(getattr(sys.modules.get("sitecustomize"), "__file__", None))
print([path for path in sys.path if path.endswith(("python_start", "mine"))])
print("PYTHONPATH", os.environ["PYTHONPATH"])
"""


@pytest.mark.parametrize("own", [None, "print('mine')", "1 / 0", "import nowhere"])
def test_a_sitecustomize_of_the_users_own_runs_as_ever(run: Run, tmp_path: Path, own: str | None) -> None:
    """It is found on the user's PYTHONPATH, behind one more folder; what is wrong in it is told in Python's words."""
    (tmp_path / "show.py").write_text(SHOWN)
    mine = tmp_path / "mine"
    mine.mkdir()
    if own is not None:
        (mine / "sitecustomize.py").write_text(own)
    environment = {**os.environ, "PYTHONPATH": str(mine)}
    command = ("env", sys.executable, "show.py")
    alone = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    _, said = run(*command, PYTHONPATH=str(mine))
    whole = f"PYTHONPATH {any_python.START_FOLDER}:"
    assert said == (alone.stdout + alone.stderr).replace("PYTHONPATH ", whole)


def test_a_script_that_spawns_in_each_rank_is_told_at_its_start(run: Run, tmp_path: Path) -> None:
    """Its processes may never take a step: torchrun's variables promise a store, and nobody serves one for them."""
    (tmp_path / "train.py").write_text("from torch.multiprocessing import spawn\nspawn(print, nprocs=0)\nprint('on')")
    said = run("python", "train.py", WORLD_SIZE="2")[1]
    assert said.count("each of the 2 ranks starts training processes of its own") == 1
    assert "on\n" in said
    assert run("python", "train.py")[1] == "on\n"


def test_its_processes_that_wait_for_one_another_in_vain_end_the_job_with_that_cause(
    line: Line, tmp_path: Path
) -> None:
    """And no other end of theirs does, whatever words stand in the code that failed."""
    waits = (
        f"dist.init_process_group('gloo', init_method='tcp://127.0.0.1:{free_port()}', rank=1, world_size=2, "
        "timeout=datetime.timedelta(seconds=1))"
    )
    for what, code in ((waits, names.EXIT_BAD_CONFIGURATION), ("urlopen('http://127.0.0.1:1', timeout=9)", 1)):
        (tmp_path / "train.py").write_text(
            "import datetime\nimport torch.distributed as dist\nfrom urllib.request import urlopen\n"
            f"from torch.multiprocessing import start_processes\ndef train(place):\n    {what}\n"
            "start_processes(train, start_method='fork')"
        )
        page = tmp_path / "page"
        ended = line.run(tmp_path, ("python", "train.py"), **{names.ENV_PROGRESS_FILE: str(page), "WORLD_SIZE": "2"})
        assert ended.code == code, ended.errors
        told = "trainmaster: training.command: each of the 2 ranks starts training"
        assert (told in ended.errors) == (code != 1)
        assert re.search("One has ended with: .*timed out", ended.errors) or code == 1


def test_a_python_that_obeys_no_variables_is_left_alone_and_told_of(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import sys\nprint([one for one in sys.modules if 'awaited_torch' in one])")
    for option in ("-E", "-I"):
        output, errors = run("env", sys.executable, option, "t.py")[1].split("\n", 1)
        assert output == "[]"
        assert f"steps are not counted, as `python {option}` keeps" in errors
    assert run("env", sys.executable, "t.py")[1] == "['trainmaster_trainer.agent.awaited_torch']\n"


def test_any_python_can_read_what_runs_at_its_start() -> None:
    """Also one that is too old for the rest: nothing newer than Python 2.7 is in it, and no name but these."""
    text = START.read_text()
    nodes = [*ast.walk(ast.parse(text, feature_version=(3, 4)))]
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.FunctionDef, ast.AsyncFunctionDef, ast.Starred)
    assert [node for node in nodes if isinstance(node, newer)] == []
    assert text.isascii()
    named = {node.value for node in nodes if isinstance(node, ast.Constant) and "TRAINMASTER" in str(node.value)}
    assert named == {names.ENV_PACKAGES, names.ENV_STACKS_FILE}


def test_what_every_python_imports_imports_nothing() -> None:
    """It is in the way of each program that a rank starts, so not even `typing` is worth its milliseconds."""
    environment: dict[str, str] = {}
    any_python.prepare(environment, 1)
    ours = "trainmaster_trainer.agent.awaited_torch", "trainmaster_trainer.agent.stack_signal"
    program = f"import sys; before = {{*sys.modules}}; import trainmaster, {', '.join(ours)}"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"{program}; print({{*sys.modules}} - before)"],
        env={"PYTHONPATH": environment[names.ENV_PACKAGES]},
        capture_output=True,
        text=True,
        check=True,
    )
    built_in = {"faulthandler"}  # and `_signal`, which is always there
    trainer = {"trainmaster", "trainmaster_trainer", "trainmaster_trainer.agent", *ours}
    assert ast.literal_eval(ran.stdout) == {"__future__"} | built_in | trainer
