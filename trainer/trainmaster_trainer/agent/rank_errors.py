"""Write a failed rank's error file, readable by torch's own tools and by the agent.

The file is what `torch.distributed.elastic`'s `@record` would write,
with one more member that says more.
"""

from __future__ import annotations

import errno
import json
import os
import re
import runpy
import site
import sys
import sysconfig
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Tuple

MEMBER = "trainmaster"
MOST_MESSAGE = 1024
MOST_TRACEBACK = 8192
_MOST_FOR_TORCH = 1 << 16  # characters of what torch's tools show: a message may have megabytes
_WRAPPED = re.compile(r"Caught (\w+) in .*\n+Original Traceback ")
_EXCHANGES = re.compile(r"/torch/(distributed|autograd)/|/trainmaster_trainer/(transport|collectives|checkpoint)/")
_THE_USERS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOEXEC,
    errno.E2BIG,
)
_OURS = (str(Path(__file__).absolute().parent.parent),)


def write(path: Optional[str], error: BaseException) -> None:
    """Write the error file, whole or not at all: the agent may read at any moment."""
    if not path:
        return
    temporary = Path(f"{path}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(describe(error, time.time())), encoding="utf-8")
        temporary.replace(path)
    except Exception as failure:  # noqa: BLE001 an error in telling of an error must not take its place
        say(f"trainmaster: the error file could not be written: {text_of(failure)}")


def describe(error: BaseException, now: float) -> Dict[str, Any]:
    """Return the content of the error file."""
    kind, message = cause(type(error).__name__, text_of(error))
    stack = "".join(traceback.format_exception(type(error), error, users_part(error)))
    return {
        "message": {
            "message": f"{kind}: {message[:_MOST_FOR_TORCH]}",
            "extraInfo": {"py_callstack": stack[-_MOST_FOR_TORCH:], "timestamp": str(int(now))},
        },
        MEMBER: {
            "type": kind,
            "message": message[:MOST_MESSAGE],
            "frame": frame(error),
            "traceback": stack[-MOST_TRACEBACK:],
            "time": now,
            "resume_before": getattr(error, "resume_before", None),
        },
    }


def cause(kind: str, message: str) -> Tuple[str, str]:
    """Return type and message of the error itself where torch has wrapped one of a helper process or thread.

    Its DataLoader writes "Caught OSError in DataLoader worker process 0.", then a traceback, and the error last.
    """
    wrapped = _WRAPPED.match(message)
    if not wrapped:
        return kind, message
    name = wrapped.group(1)
    ends = [found.end() for found in re.finditer(rf"^(?:[\w.]+\.)?{name}(?:: |$)", message, re.MULTILINE)]
    return (name, message[ends[-1] :].strip()) if ends else (kind, message)


def is_the_users(error: OSError) -> bool:
    """Return whether a file, a folder or a program is missing, or of a wrong kind: a restart would not help."""
    return error.errno in _THE_USERS


def is_of_an_exchange(error: BaseException) -> bool:
    """Return whether an error may come from an exchange with other ranks, one of which is then gone."""
    return any(_EXCHANGES.search(entry.filename) for entry in traceback.extract_tb(error.__traceback__))


def frame(error: BaseException) -> str:
    """Return `file:line in function`: the innermost frame of the user's own code, else the innermost of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 0}"
    told = getattr(error, "trainmaster_frame", "")  # it happened in another process, of the rank's own
    if isinstance(told, str) and told:
        return told
    frames = traceback.extract_tb(users_part(error))
    own = [entry for entry in frames if is_users(entry.filename)]
    for entry in reversed(own or list(frames)):
        return f"{entry.filename}:{entry.lineno} in {entry.name}"
    return ""


def users_part(error: BaseException) -> Optional[TracebackType]:
    """Return the traceback without the frames that started the user's code, as `python script.py` would show it."""
    rest = error.__traceback__
    while rest is not None:
        name = rest.tb_frame.f_code.co_filename
        if not name.startswith(_OURS) and name != runpy.__file__ and not name.startswith("<frozen"):
            return rest
        rest = rest.tb_next
    # Of a script that is not even Python there is no frame, and Python shows none.
    return None if isinstance(error, SyntaxError) else error.__traceback__


def is_users(filename: str) -> bool:
    """Return whether it is the user's own code: neither ours nor a library's."""
    # Not the user's: this package, the standard library, and what pip installed.
    paths = sysconfig.get_paths()
    folders: List[str] = [*_OURS, paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    folders += site.getsitepackages()
    libraries = tuple(folder.rstrip(os.sep) + os.sep for folder in folders)
    return not filename.startswith(("<", *libraries))


def say(text: str) -> None:
    """Write a line into the log, unless the user's code has closed or replaced it."""
    with suppress(Exception):
        sys.stderr.write(f"{text}\n")


def text_of(value: object) -> str:
    """Return the text that `str` makes of a value; where that fails, a text that says so."""
    try:
        return str(value)
    except Exception as failure:  # noqa: BLE001 the user's own __str__
        return f"(its text cannot be had: {type(failure).__name__})"
