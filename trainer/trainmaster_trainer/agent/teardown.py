"""Do at the end of a rank what Python does to a program's modules at its end, and nothing more.

A file, an archive or a temporary file that a script leaves open in a variable of a module is
completed by that object's finalizer, and finalizers run when Python takes the modules apart (`finalize_modules` in
CPython's pylifecycle.c). What the warm parent had imported is left alone: it holds nothing of the user's, and taking
torch apart takes 0.5 s, in which a dead rank's sockets would stay open. In an interpreter of the rank's own, torch and
what it imports are left alone likewise.
"""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import types
import weakref
from typing import Any, Dict, List, Set, Tuple

_LEFT_ALONE = ("trainmaster", "trainmaster_trainer", "torch", "numpy")  # ours are needed up to the last line
_LAST = ("last_type", "last_value", "last_traceback", "last_exc", "ps1", "ps2")
_FIRST = ("__main__", "__mp_main__")  # both are names of the program's first module
_BEFORE: Set[str] = set()  # the modules that were there before the user's program began


def begin() -> None:
    """Note which modules are there already, in the process of a rank whose program is about to begin.

    A child that stands by does so too: each name that is touched first costs a forked process a copied page, and there
    are some thousands. The rank has to do it again only if it has imported something since.
    """
    if len(_BEFORE) != len(sys.modules) - sum(name in sys.modules for name in _FIRST):
        _BEFORE.update(sys.modules)
        _BEFORE.difference_update(_FIRST)


def take_apart() -> None:
    """Run the finalizers of all that the program's modules hold, in the order in which Python would."""
    if not _BEFORE:
        return
    threading.excepthook = lambda _: None  # Python stops daemon threads here; ours fail, which is not to be shown
    gc.callbacks.clear()  # Python calls none of them at its end: they need modules that are taken apart
    _forget_special()
    left = _remove_modules()
    gc.collect()
    for reference in reversed(left):
        module = reference()
        if module is not None:
            _clear(module.__dict__)
        del module
    gc.collect()


def _forget_special() -> None:
    """Drop what the interpreter itself keeps of the program: the last error, and replaced streams."""
    if hasattr(builtins, "_"):
        builtins._ = None
    for name in _LAST:
        if hasattr(sys, name):
            setattr(sys, name, None)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, getattr(sys, f"__{name}__"))


def _remove_modules() -> List[weakref.ReferenceType[types.ModuleType]]:
    """Take the program's modules out of sys.modules: those that nothing else refers to end right here."""
    found: List[Tuple[str, Any]] = [
        (name, module)
        for name, module in sys.modules.items()
        if name not in _BEFORE and name.partition(".")[0] not in _LEFT_ALONE
    ]
    left = [weakref.ref(module) for _, module in found if isinstance(module, types.ModuleType)]
    for name, _ in found:
        del sys.modules[name]
    return left


def _clear(variables: Dict[str, Any]) -> None:
    """Set a module's variables to None, private ones first, as `_PyModule_ClearDict` does."""
    for name in [*variables]:
        if name.startswith("_") and not name.startswith("__"):
            variables[name] = None
    for name in [*variables]:
        if name != "__builtins__":
            variables[name] = None
