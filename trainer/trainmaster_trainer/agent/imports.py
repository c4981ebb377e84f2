"""Note what a task imports, in a rank that imports it, and import it once more for the ranks of later attempts.

Libraries take seconds to import, at every restart. So the first rank of a replica writes down which installed modules
it imports, and under which variables (`ImportNotes`). A process forked from the warm parent imports the same
(`repeat`), and from then on forks the ranks; see `branch`. What makes it give up:
docs/decisions/0043-what-a-task-imports.md.
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
from typing import Any, Collection, Deque, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from trainmaster_trainer.agent import process

WORTH = 20  # notes: with fewer of them a restart gains nothing that shows
# They open devices, or count those that are open.
_NEVER = frozenset({"jax", "jaxlib", "tensorflow", "torch_xla"})
# Set by a task, they are mostly another one in each rank.
_OF_DEVICES = ("CUDA_", "HIP_", "ROCR_", "NCCL_", "GLOO_")
_MOST_WAITING = 64
# Instead of a module's file:
OUTSIDE, RANKS_OWN = "outside", "rank's own"


class ChangedError(Exception):
    """ChangedError says that a rank that found this imported could tell it from its own import."""


# --- In a rank ---------------------------------------------------------------------------------------------------


class ImportNotes:
    """ImportNotes is the first finder: asked for each module that is not there yet, it finds none and keeps the name.

    A name is written down at the next question if its module is there by then: some code only asks whether it exists.
    """

    def __init__(self, path: str, without: str) -> None:
        self._path = Path(path)
        self._without = without
        self._pid = os.getpid()
        self._variables = dict(os.environ)
        self._waiting: Deque[str] = collections.deque(maxlen=_MOST_WAITING)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 the protocol's
        """Note a name that is imported. Every import comes through here: nothing may go wrong."""
        if os.getpid() != self._pid:
            return  # a data loader's process is none of those that are started again
        with contextlib.suppress(Exception):
            for other in [*self._waiting]:
                origin = _origin(other)
                if origin is not None:
                    self._waiting.remove(other)
                    self._write(self._line(other, origin))
            if self._variables != os.environ:
                before, self._variables = self._variables, dict(os.environ)
                both = {*before, *self._variables}
                changed = [name for name in both if before.get(name) != self._variables.get(name)]
                self._write([{name: self._variables.get(name) for name in changed}])
            self._waiting.append(name)

    def _line(self, name: str, origin: str) -> List[str]:
        """Return the name and the file, or a mark in place of the file where it is not to be imported by others."""
        top = name.partition(".")[0]
        if top == self._without or not (origin.startswith(_INSTALLED) and not origin.endswith("__main__.py")):
            return [name, OUTSIDE]
        return [name, RANKS_OWN if top in _NEVER or not _is_plain_torch() else origin]

    def _write(self, line: Any) -> None:
        with self._path.open("a") as file:  # not held open: who counts or closes descriptors must find none of ours
            file.write(json.dumps(line) + "\n")


def note(path: Optional[str], without: str) -> None:
    """Write down from here on what this process imports, but for the package `without`; nothing without a path."""
    if path:
        sys.meta_path.insert(0, ImportNotes(path, without))


def _origin(name: str) -> Optional[str]:
    """Return the file of an imported module, or None. One that is to be loaded at its first use is not touched."""
    module = sys.modules.get(name)
    if module is None or type(module) is importlib.util._LazyModule:  # type: ignore[attr-defined]  # noqa: SLF001
        return None
    origin = getattr(object.__getattribute__(module, "__dict__").get("__spec__"), "origin", None)
    return origin if isinstance(origin, str) else None


def _is_plain_torch() -> bool:
    """Return whether torch's default dtype is float32, by which imports make the same tensors as elsewhere."""
    torch = sys.modules.get("torch")
    return torch is None or torch.get_default_dtype() is torch.float32


def _installed() -> Tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({folder.rstrip(os.sep) + os.sep for folder in (*folders, *site.getsitepackages())})


_INSTALLED = _installed()


# --- In a process forked from the warm parent --------------------------------------------------------------------


def repeat(lines: Iterable[str], differing: Collection[str]) -> None:
    """Import what was noted. `differing`: variables in which ranks or attempts differ, and which are not set here.

    Raises:
        ChangedError: a rank could tell this import from its own.
    """
    parsed = [json.loads(line) for line in lines]
    before = _traces()
    asked: Set[str] = set()
    outside = _Outside(line[0] for line in parsed if line[-1] == OUTSIDE)
    os.environ.__class__ = _watching(frozenset(differing), asked)
    sys.meta_path.append(outside)
    try:
        with _without_cuda():
            for line in parsed:
                _repeat_one(*line)
    finally:
        os.environ.__class__ = os._Environ  # noqa: SLF001 as it was
        sys.meta_path.remove(outside)
    asked |= outside.asked
    if asked:
        raise ChangedError(f"something asks for {min(asked)} while it is imported")
    changed = [what for what, trace in _traces().items() if trace != before[what]]
    if changed:
        raise ChangedError(f"something leaves {changed[0]} behind")


class _Outside:
    """_Outside is the last of the finders: it notes what is asked for that the rank found in the task's own folders."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self.asked: Set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 the protocol's
        """Note a name that is imported, if it is one of these."""
        if name in self._names:
            self.asked.add(name)


@contextlib.contextmanager
def _without_cuda() -> Iterator[None]:
    """Refuse that a GPU is opened: its context would take memory from the rank that uses it, and make forks useless."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    before = getattr(cuda, "_lazy_init", None)

    def refuse() -> None:
        raise ChangedError("something opens a GPU while it is imported")

    if before is not None:
        cuda._lazy_init = refuse  # type: ignore[union-attr]  # noqa: SLF001
    try:
        yield
    finally:
        if before is not None:
            cuda._lazy_init = before  # type: ignore[union-attr]  # noqa: SLF001


def _repeat_one(what: Any, origin: str = "") -> None:
    if isinstance(what, dict):
        for name, value in what.items():
            if name.startswith(_OF_DEVICES):
                raise ChangedError(f"the task sets {name} before it imports")
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    elif origin == RANKS_OWN:
        raise ChangedError(f"{what} belongs to its rank alone")
    elif origin != OUTSIDE:
        _import(what, origin)


def _import(name: str, origin: str) -> None:
    there = len(sys.modules)
    try:
        if "." not in name:  # before a file of another place is run
            _check_place(name, getattr(importlib.util.find_spec(name), "origin", None), origin)
        importlib.import_module(name)
    except ImportError as error:
        if len(sys.modules) > there:
            raise ChangedError(f"{name} is imported by halves only: {error}") from None
        return  # as in the rank, which went on without it
    except ChangedError:
        raise
    except BaseException as error:  # noqa: BLE001 an import may even call sys.exit
        raise ChangedError(f"{name} cannot be imported: {type(error).__name__}: {error}") from None
    _check_place(name, _origin(name), origin)


def _check_place(name: str, found: Optional[str], noted: str) -> None:
    if found != noted:
        raise ChangedError(f"{name} is at {found} and was at {noted}")


def _watching(differing: Collection[str], asked: Set[str]) -> type:
    """Return a class for os.environ that adds to `asked` each name among `differing` that Python code asks for."""

    class Watched(os._Environ):  # type: ignore[type-arg]  # noqa: SLF001 there is no other way to see who asks
        def __getitem__(self, key: Any) -> Any:
            if key in differing:
                asked.add(key)
            return super().__getitem__(key)

    return Watched


def _traces() -> Dict[str, Any]:
    """Return what imports must leave as it was."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return {
        "a thread": process.threads(),
        "a child": path.read_text().split() if path.exists() else [],
        "a handler of a signal": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "shared memory": sum(1 for line in maps if " rw-s " in line),
        "an open file": sorted(path.name for path in Path("/proc/self/fd").iterdir()),
        "another working directory": Path.cwd(),
        "CUDA": cuda is not None and bool(cuda.is_initialized()),
    }
