"""A script sees and says under a warm parent what it sees and says under Python itself, and ends in the same way."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from trainmaster.wire import names

from tests.trainer.agent.machine import RANK, SCRIPTS, Ended, Line


def by_python(folder: Path, words: tuple[str, ...], **variables: str) -> Ended:
    """The same command by Python itself."""
    ran = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=folder,
        env={**os.environ, **RANK, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(ran.stdout, ran.stderr, ran.returncode)


def facts_and_words(ended: Ended) -> tuple[dict[str, Any], list[str]]:
    assert ended.code == 0, ended.errors
    first, *words = without_addresses(ended.output).splitlines()
    return json.loads(first), words


def without_addresses(text: str) -> str:
    """Objects lie elsewhere in each process."""
    return re.sub("0x[0-9a-f]+", "0x", text)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ("python probe.py --a 1 -m", {}),
        ("python ./sub/../link.py", {}),
        ("python -m probe a b", {}),
        ("python -m package", {}),
        ("python package", {}),
        ("python archive", {}),
        ("python -O -W error::UserWarning -Xdev probe.py", {}),
        ("python -I probe.py", {"PYTHONPATH": "sub"}),
        ("python -E -s -P probe.py", {"PYTHONPATH": "sub", "PYTHONUNBUFFERED": "1"}),
        ("python -S -B -X utf8 probe.py", {}),
        ("python probe.py", {"PYTHONHASHSEED": "0", "PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}),
        ("python probe.py", {"PYTHONPATH": "sub::/nowhere:sub"}),
    ],
)
def test_a_script_sees_what_python_shows_it(line: Line, tmp_path: Path, words: str, variables: dict[str, str]) -> None:
    """Forked where that makes no difference, else in an interpreter of its own: no script can tell."""
    for place in ("probe.py", "package/__main__.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(SCRIPTS / "probe.py", tmp_path / place)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.py").symlink_to("probe.py")
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.write(SCRIPTS / "probe.py", "__main__.py")
    command = tuple(words.split())
    kept = tmp_path / "kept.zip"
    facts, said = facts_and_words(line.run(tmp_path, command, PROBE_ARCHIVE=str(kept), **variables))
    wanted, wanted_said = facts_and_words(by_python(tmp_path, command, **variables))
    assert facts == wanted
    assert said == wanted_said
    assert zipfile.ZipFile(kept).read("a") == b"b", "what a script leaves open is whole"


WAYS = {
    "a program on the command line": ("-c", "import sys; print(sys.argv, sys.path[0], 1 + 1)", "a"),
    "a folder less": ("-P", "-c", "import sys; print(sys.path)"),
    "a first line that is none of Python's": ("-x", "t.py", "a"),
    "standard input": ("-", "a"),
    "letters that stand together": ("-Bum", "this"),
    "a file that is not there": ("nowhere.py",),
}


@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS.keys())
def test_what_is_no_script_or_module_is_run_by_python_itself(
    line: Line, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "t.py").write_text("@echo off\nimport sys\nprint(sys.argv, __file__)\nraise ValueError('line 4')")
    ended = line.run(tmp_path, ("python", *words))
    wanted = by_python(tmp_path, ("python", *words))
    if words == ("nowhere.py",):
        assert ended.code == names.EXIT_BAD_CONFIGURATION, "in a sentence of ours, which is not tried again"
    else:
        assert ended == wanted


SETTING = """
import os
for name in ("MPMATH_STRICT", "NOBODY_READS_IT"):
    os.environ.setdefault(name, "Y")
import mpmath.libmp.backend
print(mpmath.libmp.backend.STRICT)
"""


@pytest.mark.parametrize("place", ["t.py", "settings.py"])
def test_a_library_reads_what_the_program_sets_before_its_import(line: Line, tmp_path: Path, place: str) -> None:
    """The warm parent has imported it already, so such a program gets a Python of its own."""
    (tmp_path / "t.py").write_text("import settings")
    (tmp_path / place).write_text(SETTING)
    ended = line.run(tmp_path, ("python", "t.py"))
    assert ended.output == by_python(tmp_path, ("python", "t.py")).output == "True\n"
    assert f"{place} sets MPMATH_STRICT, which is read when a library is imported" in ended.errors


def test_a_variable_that_no_library_reads_costs_nothing(line: Line, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import os\nos.environ['MASTER_PORT'] = os.environ['CUDA_VISIBLE_DEVICES'] = '0'")
    assert line.run(tmp_path, ("python", "t.py")) == Ended("", "", 0)


def test_the_python_path_of_the_warm_parent_is_not_the_programs(line: Line, tmp_path: Path) -> None:
    """It is that of whoever started the warm parent; the program's own may have been set to another one."""
    (tmp_path / "t.py").write_text("import sys\nprint(sys.path)")
    assert "/of-the-parent" not in line.run(tmp_path, ("python", "t.py")).output


ENDS = {
    "nothing": "pass",
    "a text": "import sys; sys.exit('please set DATA_DIR')",
    "true": "import sys; sys.exit(True)",
    "a large number": "import sys; sys.exit(1 << 70)",
    "below zero": "import sys; sys.exit(-1)",
    "another object": "import sys; sys.exit(['a'])",
    "an error": "def f():\n    raise ValueError('no good')\n\nf()",
    "an error from another": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "an error while another": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['k']",
    "a syntax error": "x = (1,\ny = 2",
    "a hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0",
    "a hook that fails": "import sys\nsys.excepthook = lambda *a: {}['k']\n1 / 0",
    "an error in a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()",
    "an exit in a thread": "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start()",
    "an exit function that fails": "import atexit\n@atexit.register\ndef f():\n    1 / 0",
    "at once": "import os\nprint('lost?', flush=True)\nos._exit(7)",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "a generator": "def g():\n    try:\n        yield\n    finally:\n        print('closed')\nG = g()\nnext(G)",
    "what watches collections": "import gc\nN = 1\ngc.callbacks.append(lambda *_: N + 1)",
    "warnings": "import warnings\nwarnings.warn('old')",
    "print to a closed stream": "import sys\nsys.stdout.close()",
}


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS.keys())
def test_a_script_ends_as_with_python(line: Line, tmp_path: Path, text: str) -> None:
    (tmp_path / "t.py").write_text(text)
    ended = line.run(tmp_path, ("python", "t.py"))
    wanted = by_python(tmp_path, ("python", "t.py"))
    assert ended.output == wanted.output
    assert without_addresses(ended.errors) == without_addresses(wanted.errors)
    assert ended.code == max(wanted.code, -1)
