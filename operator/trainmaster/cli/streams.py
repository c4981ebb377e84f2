"""Standard output and standard error as they are given to us: a file, a pipe, a terminal, or nothing at all.

Standard library only, like all that must run before anything heavy is imported. Used by main.py. For the length of a
run process_output.py writes to them.
"""

import contextlib
import io
import os
import sys


def prepare() -> None:
    """Make them take every line."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started us; no file of ours may get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a task prints what this terminal may have no letters for
            with contextlib.suppress(OSError):  # it has no file
                os.set_blocking(stream.fileno(), True)  # else what Node or a CI runner does not read at once is lost


def drop_output() -> None:
    """Nothing more is written: not what could not be either, of which Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
