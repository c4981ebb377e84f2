"""Learn what a task imports, so that its restarts need not import it again.

The first rank of a replica notes its imports (`imports`). When there were no new ones for a while, and enough to be
worth it, the warm parent has a process branch off that imports them too (`branch`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Callable, Dict, Optional

from trainmaster.wire import names

from trainmaster_trainer.agent import environment, imports, memory_left
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.parent import Parent
from trainmaster_trainer.agent.reactor import Reactor, Timer

_LOOK_SECONDS = 1.5


class Learning:
    """Learning learns for one replica. It learns nothing where TRAINMASTER_PRELOAD is set and empty."""

    def __init__(self, reactor: Reactor, files: Files, parent: Parent, folder: Optional[str]) -> None:
        self._reactor = reactor
        self._folder = folder  # where ranks work
        self._files = files
        self._parent = parent
        self._timer: Optional[Timer] = None
        self._begun: Callable[[], None] = lambda: None
        self._size = 0  # of the notes at the last look

    def notes(self, rank: int) -> str:
        """Return where this rank is to note its imports; empty where they are known, or not wanted."""
        wanted = os.environ.get(names.ENV_PRELOAD) != "" and self._parent.may_branch
        return str(self._files.imports(rank)) if wanted else ""

    def expect(self, place: environment.RankPlace, variables: Dict[str, str], pid: Callable[[], Optional[int]]) -> None:
        """Look from now on at what the rank of this place notes, which is being started with these variables."""
        self.forget()
        self._begun = lambda: self._look(place, variables, pid())
        self._again()

    def forget(self) -> None:
        """Stop looking: the rank has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._size = 0

    def _again(self) -> None:
        self._timer = self._reactor.after(_LOOK_SECONDS, self._begun)

    def _look(self, place: environment.RankPlace, variables: Dict[str, str], pid: Optional[int]) -> None:
        if not self._parent.may_branch:
            return
        try:
            notes = Path(place.imports_file).read_bytes()
        except OSError:
            notes = b""  # it has imported nothing yet, or is no Python
        if pid is None or len(notes) > self._size or notes.count(b"\n") < imports.WORTH:
            self._size = len(notes)
            self._again()
        elif memory_left.is_left_for(pid):
            differing = environment.differing(place)
            same = {name: value for name, value in variables.items() if name not in differing}
            with contextlib.suppress(OSError):  # a full disk, no descriptors left: no reason to end anything
                self._files.learned.write_bytes(notes)
                self._parent.branch_off(str(self._files.learned), self._folder, same, differing)
