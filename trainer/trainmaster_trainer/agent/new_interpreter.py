"""Give a program a new interpreter if it could tell that its process was forked from the warm parent.

The warm parent has imported libraries under its own variables. An interpreter and its libraries read some variables
only as they start; a fork would not obey them. The child then becomes a new
interpreter, which takes the seconds that importing torch takes, and says so.
See docs/decisions/0145-when-a-rank-is-forked.md.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple

from trainmaster.wire import names

from trainmaster_trainer.agent import assignments, rank_errors
from trainmaster_trainer.agent.own_program import program_of

# Read by the interpreter, by libc and its loader, and by the native parts of the libraries that the warm parent
# imports, when they start. What Python code asks for meanwhile is seen (`watched`).
_READ_BY_PYTHON = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "LOCPATH", "GCONV_PATH", "MIMALLOC_"),
    *("TCMALLOC_", "ASAN_", "LSAN_", "TSAN_", "UBSAN_"),
)
_READ_BY_LIBRARIES = (
    *("OPENSSL_CONF", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_"),
    *("TORCH", "PYTORCH", "ATEN_", "C10_", "CAFFE2_", "DNNL_", "ONEDNN_", "KINETO_", "XNNPACK_", "NPY_", "NUMPY_"),
)
_READ_AT_START = _READ_BY_PYTHON + _READ_BY_LIBRARIES
# Done for a forked process as well (`rank`, `main_module`), or read later than at the start.
_OBEYED = ("TRAINMASTER_", "TORCHELASTIC_", "TORCH_NCCL_", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER")
# Inductor sets its folder itself, in whichever process asks for it first.
_LATE = ("TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCH_CUDA_ARCH_LIST", "TORCHINDUCTOR_CACHE_DIR", "LD_RUN_PATH")
# There before Python looks at any folder of the user's.
_FIRST = (
    *sys.builtin_module_names,
    "abc",
    "codecs",
    "encodings",
    "io",
    "os",
    "posixpath",
    "genericpath",
    "site",
    "stat",
)
_CUSTOM = ("sitecustomize", "usercustomize")
_MODULE = "trainmaster_trainer.agent.rank_process"


class _OwnStart:
    """_OwnStart is what the warm parent knows of its own start; in a new interpreter only `options` may be set."""

    variables: Optional[Dict[str, str]] = None  # under which it has imported; None: this interpreter is a rank's own
    own: Mapping[str, str] = {}  # those that it has set itself
    asked: Set[str] = set()  # noqa: RUF012 one process is one warm parent
    asked_unbidden: FrozenSet[str] = frozenset()  # of these, by modules that nobody has named
    options: Tuple[str, ...] = ()  # of Python, that a new interpreter was started with
    python_path: Tuple[str, ...] = ()  # folders that are on sys.path for the warm parent's own PYTHONPATH


@contextlib.contextmanager
def watched(own: Mapping[str, str]) -> Iterator[None]:
    """Note which variables are asked for while the warm parent imports. `own`: those that it sets for that alone."""
    _OwnStart.variables, _OwnStart.own = dict(os.environ), own
    text = os.environ.get("PYTHONPATH", "")
    _OwnStart.python_path = tuple(os.path.abspath(path) for path in text.split(os.pathsep)) if text else ()  # noqa: PTH100

    class Watched(os._Environ):  # type: ignore[type-arg]  # noqa: SLF001 there is no other way to see who asks
        def __getitem__(self, key: Any) -> Any:
            _OwnStart.asked.add(key)
            return super().__getitem__(key)

    os.environ.__class__ = Watched
    try:
        yield
    finally:
        os.environ.__class__ = os._Environ  # noqa: SLF001 as it was


def unbidden_so_far() -> None:
    """Note that all modules from here on are those that the user has named, whatever the program sets for them."""
    _OwnStart.asked_unbidden = frozenset(_OwnStart.asked)


def note_options(options: Sequence[str]) -> None:
    """Note that this new interpreter was started with these options of Python."""
    _OwnStart.options = tuple(options)


def foreign_path() -> Tuple[str, ...]:
    """Return the folders that are on sys.path for the PYTHONPATH of the warm parent, which is not the program's."""
    return _OwnStart.python_path


def reason(
    variables: Mapping[str, str], options: Sequence[str], folders: Sequence[str], entries: Sequence[Path] = ()
) -> str:
    """Return in words why this process cannot run the program; empty where it can.

    `options` of Python, `folders` in which a script's modules are looked for before all others, and `entries`, the
    files with which the program begins.
    """
    if tuple(options) != _OwnStart.options:
        return f"Python is to be started with {' '.join(options)}"
    if _OwnStart.variables is None:
        return ""
    differing = sorted(_differing(variables, _OwnStart.variables))
    if differing:
        return (
            f"{', '.join(differing[:5])} {'is' if len(differing) == 1 else 'are'} read when Python or a library starts"
        )
    for folder in folders:
        hidden = sorted(_hidden(folder))
        if hidden:
            return f"{hidden[0]} in {folder} takes the place of a module that Python or a library imports"
    for made in assignments.made_by(entries, folders):
        if _comes_too_late(made, variables, _OwnStart.variables):
            return f"{made.where} sets {made.name}, which is read when a library is imported"
    return ""


def _comes_too_late(made: assignments.Assignment, variables: Mapping[str, str], seen: Mapping[str, str]) -> bool:
    """Return whether the program sets what the libraries that are here have read already, to another value."""
    name = made.name
    if name.startswith((*_OBEYED, *_READ_BY_PYTHON)) or name in _LATE:
        return False
    read = name in _OwnStart.asked_unbidden or name.startswith(_READ_BY_LIBRARIES)
    if not read or (made.only_if_unset and name in variables):
        return False
    return made.value is None or made.value != seen.get(name)


def _differing(wanted: Mapping[str, str], seen: Mapping[str, str]) -> Iterator[str]:
    for name in {*wanted, *seen}:
        matters = name in _OwnStart.asked or name.startswith(_READ_AT_START)
        if matters and not name.startswith(_OBEYED) and name not in _LATE and wanted.get(name) != seen.get(name):
            ours = name not in wanted and seen.get(name) == _OwnStart.own.get(name)
            # A number of threads can be set later as well.
            threads = wanted.get(name, "") if name == "OMP_NUM_THREADS" else ""
            if not (ours or (threads.isdigit() and int(threads) > 0)):
                yield name


def _hidden(folder: str) -> Iterator[str]:
    """Yield the files and packages in a folder that have the name of a module that was imported from elsewhere."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208 names are all that is wanted
    except OSError:
        return
    for entry in entries:
        name = entry.partition(".")[0]
        there = name in sys.modules and name not in _FIRST and not _is_from(name, folder)
        if name in _CUSTOM or there:
            path = Path(folder, entry)
            if path.suffix in (".py", ".so", ".pyc") or (path / "__init__.py").is_file():
                yield entry


def _is_from(name: str, folder: str) -> bool:
    """Return whether the module that is there comes from this very folder."""
    origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None) or ""
    return name == "__main__" or origin.startswith(os.path.join(os.path.realpath(folder), ""))  # noqa: PTH118


def is_forked() -> bool:
    """Return whether this interpreter is a copy of the warm parent's."""
    return _OwnStart.variables is not None


def become_new(why: str, options: Sequence[str]) -> NoReturn:
    """Go on as a new interpreter, with the same variables, folder and descriptors; tell why, if there is a reason."""
    if why:
        rank_errors.say(f"trainmaster: this rank gets a Python of its own, which takes longer to start: {why}")
    os.environ.pop(names.ENV_IMPORTS, None)  # what it imports is of no use to the next attempt
    words = command(options, parent=None)
    os.execve(words[0], words, dict(os.environ))  # noqa: S606 no shell is what is wanted


def command(options: Sequence[str], parent: Optional[int]) -> List[str]:
    """Return the command line of a rank's new interpreter, which ends with the process `parent`, if one is named."""
    return [sys.executable, *options, "-c", program_of(_MODULE), _MODULE, str(parent or ""), *options]
