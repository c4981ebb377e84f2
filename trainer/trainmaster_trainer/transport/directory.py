"""Read the roster file: which members take part at this moment, and where their ranks listen.

The agent replaces the file (`TRAINMASTER_ROSTER`) whenever a member comes, goes or moves. Each question looks
for a new file, but not more often than every `FRESH_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Roster

from trainmaster_trainer.errors import ConfigurationError

FRESH_SECONDS = 0.02
Version = tuple[int, int, int]


@dataclass(frozen=True)
class RankAddress:
    """RankAddress is where a rank listens. `life` differs between successive processes of the same rank."""

    host: str
    port: int
    life: tuple[int, int]


class Directory:
    """Directory answers from the roster file, and reads it again when it has changed. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._version: Version | None = None
        self._looked = 0.0
        self._roster: Roster | None = None
        self._by_role: dict[str, tuple[Roster | None, list[int]]] = {}  # and of which roster that is

    @property
    def roster(self) -> Roster:
        """Return the newest roster that could be read.

        Raises:
            ConfigurationError: none could ever be read.
        """
        with self._lock:
            self._refresh()
            if self._roster is None:
                raise ConfigurationError(
                    f"There is no roster in {self._path}: strategies whose members come and go run under "
                    "`trainmaster run` or the operator, not under torchrun."
                )
            return self._roster

    def place(self, rank: int) -> RankAddress | None:
        """Return where a rank listens now; None while the roster names no address of it."""
        for member in self.roster.members:
            local = rank - member.first_rank
            if 0 <= local < min(member.ranks, len(member.ports)):
                return RankAddress(member.address, member.ports[local], (member.incarnation, member.start or 0))
        return None

    @property
    def workers(self) -> list[int]:
        """Return the ranks that train, in order."""
        return self._ranks(names.WORKER)

    @property
    def servers(self) -> list[int]:
        """Return the ranks that hold parameters, in order."""
        return self._ranks(names.PARAMETER_SERVER)

    def _ranks(self, role: str) -> list[int]:
        roster = self.roster
        if self._by_role.get(role, (None, []))[0] is not roster:
            members = [member for member in roster.members if member.role == role]
            ranks = [rank for one in members for rank in range(one.first_rank, one.first_rank + one.ranks)]
            self._by_role[role] = (roster, sorted(ranks))
        return list(self._by_role[role][1])

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._looked + FRESH_SECONDS:
            return
        self._looked = now
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._version:
                self._roster = codec.decode(Roster, self._path.read_bytes())
                self._version = version
        except (OSError, codec.WireError):
            return  # about to be replaced: what was known holds until then
