"""The committer decides in an object store what makes a checkpoint, what stays, and what is deleted.

`stores/object_store.py` asks it; `fetch.py` is the other way.
"""

from __future__ import annotations

from collections.abc import Collection

from trainmaster_trainer.checkpoint import segments
from trainmaster_trainer.checkpoint.fetch import on_the_way
from trainmaster_trainer.checkpoint.layout import MANIFEST
from trainmaster_trainer.checkpoint.remote import SEGMENTS, Remote
from trainmaster_trainer.checkpoint.retention import Retention
from trainmaster_trainer.checkpoint.segments import Lines, SegmentWriter
from trainmaster_trainer.settings import Settings


class Committer:
    """Committer commits the checkpoints of one attempt."""

    def __init__(self, settings: Settings, remote: Remote, retention: Retention) -> None:
        self._remote = remote
        self._attempt = settings.attempt
        self._retention = retention
        self._writer = SegmentWriter(remote, settings.checkpoints, settings.run_key)
        self._newest = ""  # the checkpoint that was committed last
        self._lines: dict[str, Lines] = {}  # of committed checkpoints, by their names
        self._left: set[str] = set()  # of this attempt, what failed here or was deleted, by name

    def commit(self, name: str, step: int, manifest: bytes) -> None:
        """Put the lines, then the manifest: that one put makes it a checkpoint."""
        before = self._newest
        if not before:  # that which this attempt went on from, if there is one
            older = [one for one in on_the_way(self._remote, self._retention.way) if one.step <= step]
            before = older[0].name if older else ""
        lines = self._writer.put(name, step, self._lines_of(before) if before else Lines())
        self._remote.put(f"{name}/{MANIFEST}", manifest)
        self._newest, self._lines[name] = name, lines

    def _lines_of(self, name: str) -> Lines:
        if name not in self._lines:
            self._lines[name] = segments.read(self._remote, name)
        return self._lines[name]

    def remove(self, name: str) -> None:
        """Delete a checkpoint, or the parts of it that are there."""
        self._left.add(name)
        self._remote.remove(name)

    def tidy(self, failed: str = "") -> None:
        """Delete surplus checkpoints, and what `failed` and deletions left. Do not call it while a save is under way.

        It leaves alone what a later attempt has put, what was committed just now, though the list may not have it, and
        what another process of this attempt may be about to commit (a member that writes while another is away).
        """
        self._left |= {failed} - {""}
        there = self._remote.listing()
        for one in there.unfinished:
            if self._is_ours(one.attempt, one.name, self._left) and one.name != self._newest:
                self._remote.remove(one.name)
        surplus = [one for one in self._retention.surplus(there.saved) if one.name != self._newest]
        for one in surplus:
            self.remove(one.name)
        left = {one.name for one in there.saved if one not in surplus} | {self._newest} - {""}
        self._lines = {name: self._lines_of(name) for name in left}
        named = {segment.name for lines in self._lines.values() for segment in lines.segments}
        for name, attempt in there.segments.items():
            if name not in named and self._is_ours(attempt, name, self._writer.put_here):
                self._remote.delete(f"{SEGMENTS}/{name}")

    def _is_ours(self, attempt: int, name: str, known: Collection[str]) -> bool:
        """Return whether this may be deleted: it is of an attempt that is over, or of this one and `known`."""
        return attempt < self._attempt or (attempt == self._attempt and name in known)
