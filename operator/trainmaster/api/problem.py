"""Define Problem: one thing that is wrong with a file, where it stands, and what to change."""

from __future__ import annotations

from typing import NamedTuple

from trainmaster.wire.printable import printable

Location = tuple[str | int, ...]
_LONGEST = 500


class Problem(NamedTuple):
    """A problem is one thing that is wrong with a file. Problems sort by line and column.

    `path` is as kubectl writes it: spec.workers.env[0].name.
    """

    line: int
    column: int
    path: str
    message: str
    cure: str

    @classmethod
    def at(cls, line: int, column: int, location: Location, message: str, cure: str) -> Problem:
        """Return a problem with the field at `location`."""
        return cls(line, column, *(printable(text, _LONGEST) for text in (dotted(location), message, cure)))

    def __str__(self) -> str:
        return f"{self.line}: {self.path + ': ' if self.path else ''}{self.message}. {self.cure}"


def reason(error: OSError) -> str:
    """Return the kernel's words for an error, for the middle of a sentence: no such file or directory."""
    return (error.strerror or str(error)).lower()


def dotted(location: Location) -> str:
    """Return a location as kubectl writes it: spec.workers.env[0].name."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")
