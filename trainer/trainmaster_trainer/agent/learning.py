"""Learning what a task imports, so that its restarts need not import it again. Called by `ranks`.

The first rank of a replica notes its imports (`imports`). When there were no new ones for a while, and enough to be
worth it, the warm parent has a process branch off that imports them too (`branch`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Optional

from trainmaster.wire import names

from trainmaster_trainer.agent import environment, imports
from trainmaster_trainer.agent.files import Files
from trainmaster_trainer.agent.parent import Parent
from trainmaster_trainer.agent.reactor import Reactor, Timer

_LOOK_SECONDS = 1.5


class Learning:
    """Of one replica. None where TRAINMASTER_PRELOAD is there and empty."""

    def __init__(self, reactor: Reactor, files: Files, parent: Parent) -> None:
        self._reactor = reactor
        self._files = files
        self._parent = parent
        self._timer: Optional[Timer] = None
        self._size = 0  # of the notes at the last look

    def notes(self, rank: int) -> str:
        """Where this rank is to note its imports; nothing where they are known, or nobody wants to know."""
        wanted = os.environ.get(names.ENV_PRELOAD) != "" and self._parent.may_branch
        return str(self._files.imports(rank)) if wanted else ""

    def expect(self, place: environment.Place, variables: Dict[str, str]) -> None:
        """The rank of this place is being started with these variables, and notes what it imports."""
        self.forget()
        self._again(place, variables)

    def forget(self) -> None:
        """It has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._size = 0

    def _again(self, place: environment.Place, variables: Dict[str, str]) -> None:
        self._timer = self._reactor.after(_LOOK_SECONDS, lambda: self._look(place, variables))

    def _look(self, place: environment.Place, variables: Dict[str, str]) -> None:
        if not self._parent.may_branch:
            return
        try:
            notes = Path(place.imports_file).read_bytes()
        except OSError:
            notes = b""  # it has imported nothing yet, or is no Python
        if len(notes) > self._size or notes.count(b"\n") < imports.WORTH:
            self._size = len(notes)
            self._again(place, variables)
            return
        self._files.learned.write_bytes(notes)
        differing = environment.differing(place)
        same = {name: value for name, value in variables.items() if name not in differing}
        self._parent.branch_off(str(self._files.learned), same, differing)
