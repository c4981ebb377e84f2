"""Have a process write its Python stacks whenever a signal asks for them.

A rank does so, and every Python that a rank's command starts, before its program (`python_start/sitecustomize.py`): so
this imports nothing that would not be there anyway, or is not built in.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself takes longer to import than all that is done here
import faulthandler

TYPE_CHECKING = False  # as in typing, likewise
if TYPE_CHECKING:
    from typing import Optional

# No library that ranks use takes this one; a process that does not catch it is never sent it (it would die).
SIGNAL: int = _signal.SIGRTMIN + 7


def listen(path: Optional[str]) -> None:
    """Have this process write all stacks to `path` whenever the signal comes."""
    if not path:
        return
    try:
        # Open for the whole life of the process: when it is stuck it cannot open anything.
        file = open(path, "ab", buffering=0)  # noqa: PTH123, SIM115 pathlib would have to be imported
        faulthandler.register(SIGNAL, file, all_threads=True)
    except OSError:
        return  # no space for a file: the rank trains without
