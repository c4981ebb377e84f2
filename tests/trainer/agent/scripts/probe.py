"""Says, as one line of JSON, what a script can see of the way it was started; then words at its end, in their order."""

FIRST = sorted(globals())

import atexit  # noqa: E402 what was there before any import comes first
import gc  # noqa: E402
import json  # noqa: E402
import locale  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import pickle  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import zipfile  # noqa: E402
from dataclasses import dataclass, fields  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

FACTS = globals()


@dataclass
class Config:
    """Its annotations are types only where no future statement is in force."""

    rate: float = 0.1


class Last:
    """Says a word when it is taken apart."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __del__(self, say: Any = print) -> None:
        say("finalizer", self.word)


def double(value: float) -> Config:
    """For a process of its own, whose objects come back under multiprocessing's name for this module."""
    return Config(2 * value)


def stream(name: str) -> list[Any]:
    """What can be seen of a standard stream."""
    one = getattr(sys, name)
    mode = getattr(one, "mode", None)
    return [one.name, mode, one.encoding, one.errors, one is getattr(sys, f"__{name}__"), one.fileno(), one.closed]


def facts() -> dict[str, Any]:
    """All that is the same however a script was started."""
    return {
        "first": FIRST,
        "main": [
            __name__,
            __doc__,
            __package__,
            repr(__spec__),
            type(FACTS["__loader__"]).__name__,
            type(__builtins__).__name__,
        ],
        "file": FACTS.get("__file__"),
        "loader": getattr(FACTS["__loader__"], "path", None),
        "cached": FACTS.get("__cached__"),
        "is main": sys.modules["__main__"].__dict__ is FACTS,
        "code": facts.__code__.co_filename,
        "arguments": sys.argv,
        "original": sys.orig_argv[1:],
        "path": sys.path,
        "flags": list(sys.flags),
        "options": [sys._xoptions, sys.warnoptions, sys.dont_write_bytecode, __debug__],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "python": [sys.executable, sys.prefix, sys.exec_prefix],
        "streams": [stream(name) for name in ("stdin", "stdout", "stderr")],
        "annotations": [str(field.type) for field in fields(Config)],
        "folder": [str(Path.cwd()), os.environ.get("PWD")],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
        "umask": umask(),
        "signals": {int(number): repr(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), locale.getpreferredencoding()],
        "threads": [thread.name for thread in threading.enumerate()],
        "is first": threading.current_thread() is threading.main_thread(),
        "process": [multiprocessing.current_process().name, multiprocessing.get_start_method(), os.nice(0)],
        "collector": [gc.get_threshold(), gc.isenabled(), gc.get_debug()],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags(), sys.gettrace()],
        "pickled": pickle.loads(pickle.dumps(Config(0.5))) == Config(0.5),  # noqa: S301 its own
        "spawned": spawned(),
    }


def spawned() -> bool | None:
    """Whether a process of its own computes; Python cannot start one that finds the `__main__.py` of a package."""
    if FACTS["__file__"].endswith("__main__.py"):
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(double, (21.0,)) == Config(42.0)


def umask() -> int:
    """It can only be read by being set."""
    before = os.umask(0)
    os.umask(before)
    return before


def late() -> None:
    """A thread that is waited for, then exit functions, then finalizers."""
    THROUGH.wait()
    time.sleep(0.1)
    print("thread")  # noqa: T201 compared


if __name__ == "__main__":
    print(json.dumps(facts()), flush=True)  # noqa: T201
    atexit.register(print, "exit function 1")
    atexit.register(print, "exit function 2")
    THROUGH = threading.Event()
    threading.Thread(target=late).start()
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    ring = Last("of a ring")
    ring.itself = ring  # type: ignore[attr-defined]
    LAST = Last("of a variable")
    ARCHIVE = zipfile.ZipFile(os.environ.get("PROBE_ARCHIVE", os.devnull), "w")
    ARCHIVE.writestr("a", "b")
    print("the script is through")  # noqa: T201
    THROUGH.set()
