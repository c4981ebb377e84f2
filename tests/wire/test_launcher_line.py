"""One reader tells which launcher a command line begins with, for all that look for one."""

from __future__ import annotations

import pytest
from trainmaster.wire.launcher_line import LauncherLine, python_options, read
from trainmaster.wire.launchers import launched
from trainmaster.wire.nested_launch import refuse_nested
from trainmaster.wire.torchrun import CommandError

LINES = [
    ("torchrun t.py", "torchrun", "torchrun"),
    ("/opt/bin/deepspeed t.py", "deepspeed", "deepspeed"),
    ("accelerate launch t.py", "accelerate", "accelerate launch"),
    ("accelerate-launch t.py", "accelerate", "accelerate-launch"),
    ("python -m torch.distributed.run t.py", "torchrun", "python -m torch.distributed.run"),
    ("/opt/python3.11 -u -m torch.distributed.launch t.py", "torchrun", "python -m torch.distributed.launch"),
    ("python3 -W ignore -m deepspeed.launcher.runner t.py", "deepspeed", "python -m deepspeed.launcher.runner"),
    ("python -Xdev -X utf8 -m accelerate.commands.launch t.py", "accelerate", "python -m accelerate.commands.launch"),
]
OTHERS = [
    *("python", "python -m", "python t.py -m torch.distributed.run", "python -c 1 -m torch.distributed.run t.py"),
    *("accelerate", "accelerate config", "./torchrun.sh t.py", "bash torchrun t.py", "./python-wrapper -m torchrun"),
]


@pytest.mark.parametrize(("line", "launcher", "called"), LINES)
def test_a_launcher_is_seen_by_all_that_look_for_one(line: str, launcher: str, called: str) -> None:
    """By who carries its line out, and behind a shell."""
    assert read(line.split()) == LauncherLine(launcher, called, ("t.py",))
    launch = launched(line.split())
    assert launch
    assert (launch.launcher, launch.program) == (launcher, "t.py")
    with pytest.raises(CommandError, match=f"bash starts {called} in each"):
        refuse_nested(["bash", "-c", line], 2)


@pytest.mark.parametrize("line", OTHERS)
def test_other_programs_are_none(line: str) -> None:
    assert read(line.split()) is None


@pytest.mark.parametrize(
    ("words", "count"),
    [("-u t.py", 1), ("-OO -W error t.py -u", 3), ("-Werror -m t", 1), ("-i t.py", 0), ("-c pass", 0), ("-", 0)],
)
def test_options_of_python_end_before_the_script(words: str, count: int) -> None:
    assert python_options(words.split()) == count
