"""What a task imports: noted by a rank that imports it, and imported once more for the ranks of later attempts.

Libraries take seconds to import, at every restart. So the first rank of a replica writes down which installed modules
it imports, and under which variables (`Notes`). A process forked from the warm parent imports the same (`repeat`), and
from then on forks the ranks; see `branch`.

Ranks must find what they would have made themselves, so whatever could tell it apart is a reason to give up: a module
that asks for a variable in which ranks or attempts differ, leaves a thread, a child, an open file, shared memory or a
signal's handler behind, initialises CUDA, comes from another place, or fails in another way than by a missing module.
Modules of the task itself are left out: they may be edited between two attempts, and do what they like at import.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import importlib.util
import json
import os
import signal
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any, Collection, Deque, Dict, Iterable, List, Optional, Set, Tuple

from trainmaster_trainer.agent import process

WORTH = 20  # modules: with fewer of them a restart gains nothing that shows
# They open devices, or count those that are open.
_NEVER = frozenset({"jax", "jaxlib", "tensorflow", "torch_xla"})
_MOST_WAITING = 64


class ChangedError(Exception):
    """A rank that found this imported could tell it from its own import."""


# --- In a rank ---------------------------------------------------------------------------------------------------


class Notes:
    """First among the finders: is asked for every module that is not there yet, knows none, and remembers the names.

    A name is written down at the next question if its module is there by then: some only ask whether there is one.
    """

    def __init__(self, path: str, without: str) -> None:
        self._path = Path(path)
        self._without = without
        self._variables = dict(os.environ)
        self._waiting: Deque[str] = collections.deque(maxlen=_MOST_WAITING)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 the protocol's
        """Called by the import system."""
        for other in [*self._waiting]:
            origin = _origin(other)
            if origin is not None:
                self._waiting.remove(other)
                self._write(other, origin)
        self._waiting.append(name)

    def _write(self, name: str, origin: str) -> None:
        top = name.partition(".")[0]
        if top == self._without or not _is_installed(origin):
            return
        lines = [[name, origin]] if top not in _NEVER else [[name, ""]]
        if self._variables != os.environ:
            lines.insert(0, [_changes(self._variables, os.environ)])  # type: ignore[list-item]
            self._variables = dict(os.environ)
        with contextlib.suppress(OSError), self._path.open("a") as file:  # a full disk: then nothing is learned
            file.write("".join(json.dumps(line) + "\n" for line in lines))


def note(path: Optional[str], without: str) -> None:
    """From here on this process writes down what it imports; but for the package `without`. No path: it does not."""
    if path:
        sys.meta_path.insert(0, Notes(path, without))


def _changes(before: Dict[str, str], now: Any) -> Dict[str, Optional[str]]:
    names = {*before, *now}
    return {name: now.get(name) for name in names if before.get(name) != now.get(name)}


def _origin(name: str) -> Optional[str]:
    """The file that an imported module came from."""
    origin = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
    return origin if isinstance(origin, str) else None


def _is_installed(origin: str) -> bool:
    return origin.startswith(_INSTALLED) and not origin.endswith("__main__.py")


def _installed() -> Tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({folder.rstrip(os.sep) + os.sep for folder in (*folders, *site.getsitepackages())})


_INSTALLED = _installed()


# --- In a process forked from the warm parent --------------------------------------------------------------------


def repeat(lines: Iterable[str], differing: Collection[str]) -> None:
    """Import what was noted. `differing`: variables in which ranks or attempts differ, and which are not set here.

    Raises:
        ChangedError: a rank could tell that somebody else has imported it.
    """
    before = _traces()
    asked: Set[str] = set()
    os.environ.__class__ = _watching(frozenset(differing), asked)
    try:
        for line in lines:
            _repeat_one(*json.loads(line))
    finally:
        os.environ.__class__ = os._Environ  # noqa: SLF001 as it was
    if asked:
        raise ChangedError(f"something asks for {min(asked)} while it is imported")
    changed = [what for what, trace in _traces().items() if trace != before[what]]
    if changed:
        raise ChangedError(f"something leaves {changed[0]} behind")


def _repeat_one(what: Any, origin: str = "") -> None:
    if isinstance(what, dict):
        for name, value in what.items():
            _set_variable(name, value)
        return
    if not origin:
        raise ChangedError(f"{what} belongs to its rank alone")
    try:
        if "." not in what:  # before a file of another place is run
            _check_place(what, getattr(importlib.util.find_spec(what), "origin", None), origin)
        importlib.import_module(what)
    except ImportError:
        return  # as in the rank, which went on without it
    except ChangedError:
        raise
    except BaseException as error:  # noqa: BLE001 an import may even call sys.exit
        raise ChangedError(f"{what} cannot be imported: {type(error).__name__}: {error}") from None
    _check_place(what, _origin(what), origin)


def _check_place(name: str, found: Optional[str], noted: str) -> None:
    if found != noted:
        raise ChangedError(f"{name} is at {found} and was at {noted}")


def _set_variable(name: str, value: Optional[str]) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _watching(differing: Collection[str], asked: Set[str]) -> type:
    """A class for os.environ that adds to `asked` each name among `differing` that anybody asks for in Python."""

    class Watched(os._Environ):  # type: ignore[type-arg]  # noqa: SLF001 there is no other way to see who asks
        def __getitem__(self, key: Any) -> Any:
            if key in differing:
                asked.add(key)
            return super().__getitem__(key)

    return Watched


def _traces() -> Dict[str, Any]:
    """What must be after imports as it was before."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return {
        "a thread": process.threads(),
        "a child": _children(),
        "a handler of a signal": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "shared memory": sum(1 for line in maps if " rw-s " in line),
        "an open file": sorted(path.name for path in Path("/proc/self/fd").iterdir()),
        "another working directory": Path.cwd(),
        "CUDA": cuda is not None and bool(cuda.is_initialized()),
    }


def _children() -> List[str]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return path.read_text().split() if path.exists() else []
