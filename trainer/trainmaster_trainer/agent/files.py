"""The files of one attempt in the scratch folder: progress pages, error files, the roster.

Written by `ranks`; the pages are read by `board` from other threads, hence the lock.
"""

from __future__ import annotations

import os
import threading
from typing import Dict, List

from trainmaster.wire.messages import Member
from trainmaster.wire.progress import ProgressFile, ProgressPage
from trainmaster_trainer.agent.settings import Settings


class Files:
    """Only the newest attempt's files are kept."""

    def __init__(self, settings: Settings) -> None:
        name = f"{settings.role}-{settings.index}-{settings.incarnation}"
        self._folder = os.path.join(settings.scratch, name)
        self._attempt_folder = self._folder
        self._pages: Dict[int, ProgressFile] = {}
        self._lock = threading.Lock()

    @property
    def roster(self) -> str:
        """Where ranks find the roster."""
        return os.path.join(self._attempt_folder, "roster.json")

    def progress(self, rank: int) -> str:
        """Where `rank` writes its progress."""
        return os.path.join(self._attempt_folder, f"rank-{rank}.progress")

    def error(self, rank: int) -> str:
        """Where `rank` writes its last words."""
        return os.path.join(self._attempt_folder, f"rank-{rank}.error.json")

    def begin(self, attempt: int, member: Member, roster: bytes) -> List[ProgressFile]:
        """Make the files of an attempt anew; the answer is a page per local rank."""
        with self._lock:
            for page in self._pages.values():
                page.close()
            _remove_files(self._attempt_folder)
            self._attempt_folder = os.path.join(self._folder, f"attempt-{attempt}")
            os.makedirs(self._attempt_folder, exist_ok=True)
            _remove_files(self._attempt_folder, keep_folder=True)
            numbers = range(member.first_rank, member.first_rank + member.ranks)
            self._pages = {rank: ProgressFile(self.progress(rank), create=True) for rank in numbers}
        self.write_roster(roster)
        return [*self._pages.values()]

    def write_roster(self, roster: bytes) -> None:
        """Whole or not at all: a rank may read at any moment."""
        temporary = f"{self.roster}.new"
        with open(temporary, "wb") as file:
            file.write(roster)
        os.replace(temporary, self.roster)

    def read_pages(self) -> Dict[int, ProgressPage]:
        """What the ranks of the newest attempt wrote last; a rank that has written nothing is left out."""
        with self._lock:
            pages = {rank: page.read() for rank, page in self._pages.items()}
        return {rank: page for rank, page in pages.items() if page.updated > 0}


def _remove_files(folder: str, keep_folder: bool = False) -> None:
    try:
        for entry in os.listdir(folder):
            path = os.path.join(folder, entry)
            if os.path.isfile(path):
                os.unlink(path)
        if not keep_folder:
            os.rmdir(folder)
    except OSError:
        pass  # nothing there, or something that is not ours
