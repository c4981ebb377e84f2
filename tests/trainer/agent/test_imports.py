"""What is noted of a task's imports, and what is not imported once more for others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trainmaster_trainer.agent import memory_left

from tests.trainer.agent.installed import Installed

LAZY = """
import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
spec = find_spec("heavy")
spec.loader = LazyLoader(spec.loader)
lazy = sys.modules["heavy"] = module_from_spec(spec)
spec.loader.exec_module(lazy)
import colorsys
"""

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


NOTED = {
    "import heavy.a24": ["heavy", "heavy.a24"],
    "import importlib.util as u; u.find_spec('heavy.a24')": ["heavy"],
    "import os; import heavy.a24; os.environ['B'] = '1'": ["heavy", "heavy.a24", {"B": "1"}],
    "import os; os.environ['B'] = '1'; import heavy.a24": [{"B": "1"}, "heavy", "heavy.a24"],
    "import os; os.fork() or __import__('heavy.a24'); os.wait()": [],
    LAZY: [],
    LAZY + "\nlazy.COUNT": ["heavy"],
}


@pytest.mark.parametrize("text", NOTED)
def test_notes(installed: Installed, text: str) -> None:
    """In order, with the variables as they were; neither what a child imports, nor what is loaded at its first use."""
    (installed.package / "__init__.py").write_text("COUNT = 1")
    assert [line[0] for line in installed.notes(text)] == NOTED[text]


def test_what_the_tasks_own_folder_has_is_not_imported_by_others(installed: Installed) -> None:
    """Nor is it taken for missing: a library that looks for it found it in the rank."""
    (installed.folder / "mine.py").write_text("")
    (installed.package / "__init__.py").write_text("try: import mine\nexcept ImportError: pass")
    lines = installed.notes("import heavy")
    assert lines == [["heavy", str(installed.package / "__init__.py")], ["mine", "outside"]]
    assert installed.repeat(*lines) == "something asks for mine while it is imported"


def test_half_a_package_is_not_left_behind(installed: Installed) -> None:
    path = installed.package / "__init__.py"
    path.write_text("from heavy import a24; import nothing_of_this_name")
    assert installed.repeat(["heavy", str(path)]).startswith("heavy is imported by halves only: ")


def test_other_numbers_are_the_ranks_own_affair(installed: Installed) -> None:
    (installed.folder / "torch.py").write_text("float32 = 1\ndef get_default_dtype(): return 2")
    lines = installed.notes("import sys; sys.path.insert(0, '.'); import torch; import heavy.a24")
    assert {line[1] for line in lines} == {"rank's own"}


def test_a_variable_of_devices_is_mostly_another_one_in_each_rank(installed: Installed) -> None:
    assert "sets CUDA_VISIBLE_DEVICES before" in installed.repeat([{"CUDA_VISIBLE_DEVICES": "1"}])


def test_there_must_be_room(tmp_path: Path) -> None:
    """As much again as the rank has of its own, on the host and below the container's limit."""
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\nMemAvailable:   90000000 kB\n")
    used = {"memory.max": "2000000000", "memory.current": "1990000000", "memory.stat": "anon 5\ninactive_file 0\n"}
    for name, text in used.items():
        (tmp_path / name).write_text(text)
    here = (os.getpid(), tmp_path / "meminfo", tmp_path)
    assert not memory_left.is_left_for(*here)
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 1900000000\n")
    assert memory_left.is_left_for(*here)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_left.is_left_for(*here)
    (tmp_path / "meminfo").write_text("MemAvailable: 9 kB\n")
    assert not memory_left.is_left_for(*here)


def test_what_opens_devices_is_the_ranks_own_affair(installed: Installed) -> None:
    assert installed.repeat(["torch_xla", "rank's own"]) == "torch_xla belongs to its rank alone"
