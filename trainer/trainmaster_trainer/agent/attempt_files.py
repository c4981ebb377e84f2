"""Keep the files of one attempt in the scratch folder: progress pages, error files, the roster.

Other threads read the pages, hence the lock.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Dict, List

from trainmaster.wire.files import delete_folder
from trainmaster.wire.messages import CheckpointRecord, Figures, UnsavedCheckpoint
from trainmaster.wire.progress_page import ProgressFile, ProgressPage

from trainmaster_trainer.agent import rank_death
from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.printed_figures import Said, overlaid

FRAMEWORK_FOLDER = "framework-"  # with a rank's number: what its framework wants to read


class Files:
    """Files keeps the newest attempt's files only."""

    def __init__(self, settings: AgentSettings) -> None:
        self._home = Path(settings.scratch) / f"{settings.role}-{settings.index}-{settings.incarnation}"
        self._folder = self._home / "attempt-0"
        self._pages: Dict[int, ProgressFile] = {}
        self._said: Dict[int, Said] = {}  # what ranks print of their progress
        self._batch_size = settings.plan.global_batch_size
        self._waited = 0.0
        self._lock = threading.Lock()

    @property
    def roster(self) -> Path:
        """Return where ranks find the roster."""
        return self._folder / "roster.json"

    def progress(self, rank: int) -> Path:
        """Return where `rank` writes its progress."""
        return self._folder / f"rank-{rank}.progress"

    def error(self, rank: int) -> Path:
        """Return where `rank` writes its error file."""
        return self._folder / f"rank-{rank}.error.json"

    def stacks(self, rank: int) -> Path:
        """Return where `rank` writes its Python stacks when it is asked for them."""
        return self._folder / f"rank-{rank}.stacks"

    def imports(self, rank: int) -> Path:
        """Return where `rank` notes what it imports."""
        return self._folder / f"rank-{rank}.imports"

    @property
    def learned(self) -> Path:
        """Return what a rank has imported, for the warm parent to read."""
        return self._home / "imports"

    def begin(self, attempt: int, numbers: range, roster: bytes, start: int = 0, waited: float = 0.0) -> None:
        """Make the files of an attempt anew, or of another `start` of this replica within it.

        `waited`: for so many seconds its ranks were to run, and could not be started, as there was no warm parent yet.
        """
        with self._lock:
            for page in self._pages.values():
                page.close()
            self._pages, self._said, self._waited = {}, {}, waited
            _remove(self._folder)
            self._folder = self._home / f"attempt-{attempt}"
            _remove(self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._pages = {rank: ProgressFile(str(self.progress(rank)), True, attempt, start) for rank in numbers}
        for rank in numbers:
            rank_death.prepare(str(self.progress(rank)))
        self.write_roster(roster)

    def write_roster(self, roster: bytes) -> None:
        """Replace the roster, whole or not at all: a rank may read at any moment."""
        temporary = self.roster.with_suffix(".new")
        temporary.write_bytes(roster)
        temporary.replace(self.roster)

    def step(self, rank: int) -> int:
        """Return the step that `rank` of the newest attempt reached."""
        with self._lock:
            page = self._pages.get(rank)
            return self._read(rank, page).step if page is not None else 0

    def is_done(self, rank: int) -> bool:
        """Return whether `rank` of the newest attempt has said that its training is over."""
        with self._lock:
            page = self._pages.get(rank)
            return page is not None and page.read().phase == "done"

    def read_pages(self, attempt: int, start: int) -> Dict[int, ProgressPage]:
        """Return what the ranks of this attempt and start wrote last; a rank that has written nothing is left out.

        Until ranks of a new attempt are forked, which may wait for a new warm parent, the pages of the last one lie
        here: they are no progress of the new one.
        """
        pages = self.read_all_pages().items()
        return {
            rank: page for rank, page in pages if page.updated > 0 and (page.attempt, page.start) == (attempt, start)
        }

    def read_problems(self) -> Dict[int, UnsavedCheckpoint]:
        """Return the failed saves, by rank, of the ranks of the newest attempt whose last save failed."""
        with self._lock:
            told = {rank: page.read_problem() for rank, page in self._pages.items()}
        return {rank: UnsavedCheckpoint(step, text) for rank, (step, text) in told.items() if text}

    def read_checkpoints(self) -> List[CheckpointRecord]:
        """The newest checkpoint of each rank of the newest attempt that has committed one in it."""
        with self._lock:
            records = [page.read_checkpoint() for page in self._pages.values()]
        return [record for record in records if record is not None]

    def read_figures(self) -> Dict[int, Figures]:
        """Return what ranks of the newest attempt say that they have measured, by rank."""
        with self._lock:
            told = {rank: page.read_figures() for rank, page in self._pages.items()}
        return {rank: figures for rank, figures in told.items() if figures is not None}

    def read_all_pages(self) -> Dict[int, ProgressPage]:
        """Return what all pages here say, of whatever attempt, also those on which nothing was written."""
        with self._lock:
            return {rank: self._read(rank, page) for rank, page in self._pages.items()}

    def writers(self) -> Dict[int, int]:
        """Return the process that has written each rank's page, where it is a script's: it may be none of ours."""
        with self._lock:
            return {rank: page.writer for rank, page in self._pages.items() if page.writer}

    def note_said(self, rank: int, said: Said) -> None:
        """Note what a rank of the newest attempt has printed of its progress: it lies over the rank's page."""
        with self._lock:
            self._said[rank] = said

    def _read(self, rank: int, page: ProgressFile) -> ProgressPage:
        told = overlaid(page.read(), self._said.get(rank), self._batch_size)
        return told._replace(start_seconds=told.start_seconds + self._waited)


def _remove(folder: Path) -> None:
    """Remove our files, and the folder if nothing else lies in it."""
    if not folder.is_dir():
        return
    # Folders pymp-* have the sockets of data workers, of a rank that was killed.
    for path in (found for ours in ("r*", f"{FRAMEWORK_FOLDER}*", "pymp-*") for found in folder.glob(ours)):
        if path.is_dir() and not path.is_symlink():
            delete_folder(path)
        else:
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
