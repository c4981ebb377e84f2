"""Run a script or a module as `__main__`, in an interpreter that runs already, as `python ARGUMENTS` would.

What a program can see of the way it was started is the same: `__file__` and the other variables of
`__main__`, sys.argv, sys.orig_argv, sys.path, and the file names in tracebacks.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import types
from pathlib import Path
from typing import Any, Dict, List

from trainmaster_trainer.agent import any_python, assignments, command, new_interpreter, rank_errors


class BadConfigurationError(Exception):
    """BadConfigurationError says that what is to be run is not there. A restart would not help."""

    trainmaster_configuration_error = True


def run_script(invocation: command.Invocation) -> None:
    """Run `python FILE ARGUMENTS`, where FILE may be a folder or an archive that has a `__main__.py`."""
    path = invocation.target
    sys.argv = [path, *invocation.arguments]
    importer = pkgutil.get_importer(path)
    if importer is not None:
        if importlib.machinery.PathFinder.find_spec("__main__", [path]) is None:
            raise BadConfigurationError(f"training.command: there is no __main__.py in {_absolute(path)}")
        set_first_path(_absolute(path))
        _new_main()
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]  # noqa: SLF001 as Python
        return
    whole = _absolute(path)
    source = _read(whole)
    set_first_path(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120 as Python finds it
    main = _new_main()
    main["__file__"] = whole
    if sys.version_info < (3, 15):
        main["__cached__"] = None
    main["__loader__"] = importlib.machinery.SourceFileLoader("__main__", whole)
    # Without the future statements of this very file, which `compile` would hand on.
    exec(compile(source, whole, "exec", dont_inherit=True), main)  # noqa: S102 this is what a rank is for


def run_module(invocation: command.Invocation) -> None:
    """Run `python -m MODULE ARGUMENTS`."""
    set_first_path(os.getcwd())  # noqa: PTH109
    sys.argv = ["-m", *invocation.arguments]
    try:
        found = importlib.util.find_spec(invocation.target)
    except ModuleNotFoundError as error:
        if error.name is None or f"{invocation.target}.".startswith(f"{error.name}."):
            found = None
        else:
            raise  # a package above it needs something else
    if found is None:
        raise BadConfigurationError(
            f"training.command: there is no module named {invocation.target} in {os.getcwd()} or on PYTHONPATH"  # noqa: PTH109
        )
    _new_main()
    runpy._run_module_as_main(invocation.target)  # type: ignore[attr-defined]  # noqa: SLF001 what Python itself calls


def folders(invocation: command.Invocation, working_directory: str) -> List[str]:
    """Return where the program's modules are looked for before all that is installed."""
    here = os.path.abspath(working_directory)  # noqa: PTH100
    first = here
    if invocation.kind == command.SCRIPT:
        path = os.path.realpath(os.path.join(here, invocation.target))  # noqa: PTH118
        first = path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120
    text = any_python.users_path(os.environ.get("PYTHONPATH", ""))
    return [first, *(os.path.join(here, path) for path in (text.split(os.pathsep) if text else []))]  # noqa: PTH118


def entries(invocation: command.Invocation, working_directory: str) -> List[Path]:
    """Return the files with which the program begins, as far as they are files."""
    here = os.path.abspath(working_directory)  # noqa: PTH100
    if invocation.kind == command.MODULE:
        files = assignments.modules(invocation.target, [here])
        return [*files, *(file.with_name("__main__.py") for file in files[-1:])]
    script = Path(os.path.realpath(os.path.join(here, invocation.target)))  # noqa: PTH118
    return [script / "__main__.py" if script.is_dir() else script]


def set_first_path(first: str) -> None:
    """Set sys.path as a new interpreter would have it: the script's folder first, then PYTHONPATH, then the rest."""
    rest = sys.path[1:] if sys.path[:1] == [""] else sys.path  # the folder of a new interpreter's `-c`
    text = any_python.users_path(os.environ.get("PYTHONPATH", ""))
    text = "" if sys.flags.ignore_environment else text  # `python -E` and `-I` obey none
    wanted = [os.path.abspath(path) for path in text.split(os.pathsep)] if text else []  # noqa: PTH100
    rest = [path for path in rest if path not in new_interpreter.foreign_path()]
    first_of_all = [] if getattr(sys.flags, "safe_path", False) else [first]
    sys.path[:] = [*first_of_all, *dict.fromkeys([*wanted, *rest])]


def _new_main() -> Dict[str, Any]:
    """Make a fresh `__main__` and return its variables. It stays: what runs after the script's end must find it too."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __loader__=importlib.machinery.BuiltinImporter)
    if sys.version_info < (3, 14):
        main.__dict__["__annotations__"] = {}  # noqa: RUF063 as Python makes it
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # its other name, by which multiprocessing's processes send its objects back
        sys.modules["__mp_main__"] = main
    return main.__dict__


def _absolute(path: str) -> str:
    """Return the absolute path as Python makes it: nothing else of the path is changed."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118


def _read(path: str) -> bytes:
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        if not rank_errors.is_the_users(error):
            raise
        raise BadConfigurationError(f"training.command: the script cannot be read: {error.strerror}: {path}") from None
