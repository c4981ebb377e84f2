"""Prepare standard output and standard error, whatever they are: a file, a pipe, a terminal, or closed.

Standard library only, like all that runs before anything heavy is imported. During `trainmaster run` process_output.py
writes to them.
"""

import contextlib
import io
import os
import sys


def prepare() -> None:
    """Make the standard streams able to take every line: open, blocking, and without encoding errors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed; no file of ours may get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a task may print letters that this terminal lacks
            with contextlib.suppress(OSError):  # the stream may have no file
                os.set_blocking(stream.fileno(), True)  # Node and CI runners pass non-blocking pipes, which lose lines


def drop_output() -> None:
    """Send standard output to /dev/null, so that Python does not report at its exit what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
