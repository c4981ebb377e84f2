"""What the stacks of a rank say of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainmaster_trainer.agent import stacks
from trainmaster_trainer.agent.stacks import COMPILING, OUTSIDE, SAVING, UNKNOWN, WAITING

DUMP = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f00 (most recent call first):
{frames}
  File "/home/me/train.py", line 7 in <module>
  File "<frozen runpy>", line 198 in _run_module_as_main
"""
ACTIVITIES = {
    "/site-packages/torch/distributed/distributed_c10d.py": WAITING,
    "/site-packages/torch/distributed/checkpoint/filesystem.py": SAVING,
    "/site-packages/torch/serialization.py": SAVING,
    "/site-packages/torch/autograd/graph.py": WAITING,
    "/src/trainmaster_trainer/collectives/ring.py": WAITING,
    "/src/trainmaster_trainer/transport/links.py": WAITING,
    "/src/trainmaster_trainer/checkpoint/shard.py": SAVING,
    "/site-packages/torch/_inductor/codecache.py": COMPILING,
    "/home/me/train.py": OUTSIDE,
    "/site-packages/torch/nn/modules/linear.py": OUTSIDE,
}


WAIT = '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n'
FUTURE = WAIT + '  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 451 in result\n'


@pytest.mark.parametrize("file", ACTIVITIES)
@pytest.mark.parametrize("means", ["", WAIT, FUTURE])
def test_what_a_stack_says(file: str, means: str) -> None:
    assert stacks.activity(DUMP.format(frames=f'{means}  File "{file}", line 3 in work')) == ACTIVITIES[file]


@pytest.mark.parametrize(
    ("outer", "word"),
    [
        ("_dynamo/convert_frame.py", COMPILING),
        ("_inductor/compile_fx.py", COMPILING),
        ("_dynamo/eval_frame.py", OUTSIDE),
    ],
)
def test_whatever_the_compiler_calls_is_compiling_and_what_it_made_is_not(outer: str, word: str) -> None:
    frames = '  File "/torch/fx/graph.py", line 3 in work\n  File "/me/model.py", line 5 in forward\n'
    assert stacks.activity(DUMP.format(frames=f'{frames}  File "/torch/{outer}", line 7 in run')) == word


@pytest.mark.parametrize(("inner", "word"), [("/me/loader.py", SAVING), ("/torch/distributed/c10d.py", WAITING)])
def test_a_state_dict_that_a_snapshot_asks_for_belongs_to_it(inner: str, word: str) -> None:
    frames = f'  File "{inner}", line 3 in work\n  File "/me/loader.py", line 5 in state_dict\n'
    asking = '  File "/src/trainmaster_trainer/checkpoint/memory.py", line 9 in keep'
    assert stacks.activity(DUMP.format(frames=frames + asking)) == word


def test_no_stack_says_nothing() -> None:
    assert stacks.activity("") == UNKNOWN
    assert stacks.main_thread(DUMP.format(frames='  File "a b.py", line 3 in f'))[0] == ("a b.py", 3, "f")


IN_GLOO = DUMP.format(frames='  File "/site-packages/torch/distributed/distributed_c10d.py", line 3 in work')


@pytest.mark.parametrize("length", range(0, len(IN_GLOO), 7))
def test_a_half_written_dump_says_nothing(length: int) -> None:
    assert stacks.whole(IN_GLOO[:length]) == ""
    assert stacks.whole(IN_GLOO + IN_GLOO[:length]) == IN_GLOO, "nor does it hide the one before"


def test_a_dump_whose_begin_is_missing_says_nothing() -> None:
    assert stacks.whole(IN_GLOO[IN_GLOO.index("  File", IN_GLOO.index("Current")) :]) == ""


def test_a_real_dump_is_whole_also_where_the_stack_is_deep(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(
        "import faulthandler, sys, threading\n"
        "def deep(more):\n    deep(more - 1) if more else faulthandler.dump_traceback(sys.stdout)\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "deep(int(sys.argv[1]))\n"
    )
    for depth in ("3", "300"):
        command = [sys.executable, "-m", "deep", depth]
        told = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert stacks.whole(told) == told
        assert stacks.main_thread(told)[0][2] == "deep"


HANGS = """
import sys, threading
from trainmaster_trainer.agent import stack_signal
stack_signal.listen(sys.argv[1])
print("ready", flush=True)
threading.Event().wait()
"""


def test_the_dump_of_a_plain_script_ends_with_the_script_itself(tmp_path: Path) -> None:
    """One answer is enough, also below a shell."""
    (tmp_path / "hang.py").write_text(HANGS)
    path = tmp_path / "stacks"
    command = ["sh", "-c", f"{sys.executable} ./hang.py {path}; true"]
    shell = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        asked = stacks.ask(shell.pid)
        assert asked not in (0, shell.pid)
        started_by = stacks.programs(asked)
        assert {"hang.py", "stacks"} == started_by
        while not (dump := stacks.whole(stacks.read(path, 0), started_by)):
            assert shell.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
    assert dump.endswith(" in <module>\n")
    assert stacks.main_thread(dump)[-1][0].endswith("hang.py")
    assert stacks.whole(dump) == "", "of another program it may be an import's"
    assert stacks.programs(asked) == frozenset(), "it is no more"


WAITS_FOR_DATA = """
import os, sys, threading, time
from torch.utils.data import DataLoader
from trainmaster_trainer.agent import stack_signal

class Stuck(list):
    def __getitem__(self, index):
        while True:
            os.kill(os.getppid(), stack_signal.SIGNAL)
            time.sleep(0.1)

stack_signal.listen(sys.argv[1])
threading.Thread(target=threading.Event().wait, daemon=True).start()
next(iter(DataLoader(Stuck([1]), num_workers=1, multiprocessing_context="fork")))
"""


def test_a_rank_that_waits_for_a_data_worker_says_so_and_its_main_thread_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "stacks"
    (tmp_path / "waits.py").write_text(WAITS_FOR_DATA)
    command = [sys.executable, "-m", "waits", str(path)]
    program = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        while not stacks.awaits_data(dump := stacks.whole(stacks.read(path, 0))):
            assert program.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    first = stacks.main_first(dump[dump.rindex("Thread 0x", 0, dump.rindex("Current thread")) :])
    assert first.startswith("Current thread")
    assert first.index("_get_data") < first.index("Thread 0x")
    assert not stacks.awaits_data(IN_GLOO)
    assert stacks.main_first("  no Python stack\n") == "  no Python stack\n"
