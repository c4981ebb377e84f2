"""Read a document of another operator field by field, and know at the end which fields nobody has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]

_MOST_NOTES = 200


class ConversionError(Exception):
    """The document cannot be converted. The text says why, and the cure."""


@dataclass
class ConversionNotes:
    """Collect what has no counterpart, and what was guessed, in the order in which it was met."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        """Add a note about a field; the same one is kept once."""
        if (path, text) not in self.lines and len(self.lines) < _MOST_NOTES:
            self.lines.append((path, text))

    def rename(self, path: str, name: str) -> None:
        """Write another path where notes are about something that was put together for reading."""
        self.lines = [(where.replace(path, name), text) for where, text in self.lines]


class SourceObject:
    """A source is an object of a document, at its path. What is taken out of it is not told at the end."""

    def __init__(self, data: Any, path: str, notes: ConversionNotes) -> None:
        self.path = path
        self.notes = notes
        self._left: Document = {}
        self._parts: list[SourceObject] = []
        if isinstance(data, dict):
            self._left = {str(name): value for name, value in data.items() if value is not None}
        elif data is not None:
            notes.add(path, "is no object, and is left out")

    def __bool__(self) -> bool:
        return bool(self._left)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str) -> Any:
        """Return a member as it is, None if there is none."""
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        """Return a text; a number is taken for one."""
        value = self.take(name)
        if value is None or isinstance(value, (dict, list)):
            self._wrong(name, value, "text")
            return None
        return str(value)

    def number(self, name: str) -> int | None:
        """Return a whole number, None where there is none."""
        value = self.take(name)
        if isinstance(value, str) and value.isdecimal():
            return int(value)
        if type(value) is not int:
            self._wrong(name, value, "whole number")
            return None
        return value

    def words(self, name: str) -> list[str]:
        """Return a list of texts."""
        value = self.take(name)
        if not isinstance(value, list):
            self._wrong(name, value, "list")
            return []
        return [str(word) for word in value]

    def part(self, name: str) -> SourceObject:
        """Return an object in it; an empty one where there is none."""
        made = SourceObject(self._left.pop(name, None), f"{self.path}.{name}".lstrip("."), self.notes)
        self._parts.append(made)
        return made

    def parts(self, name: str) -> list[SourceObject]:
        """Return the objects of a list in it."""
        value = self.take(name)
        if not isinstance(value, list):
            self._wrong(name, value, "list")
            return []
        made = [SourceObject(item, f"{self.path}.{name}[{at}]", self.notes) for at, item in enumerate(value)]
        self._parts += made
        return made

    def leave(self, names: Mapping[str, str]) -> None:
        """Say why fields have no counterpart, those that are there."""
        for name, why in names.items():
            if self._left.pop(name, None) is not None:
                self.notes.add(f"{self.path}.{name}", why)

    def rest(self) -> Document:
        """Take all that is left."""
        left, self._left = self._left, {}
        return left

    def tell_unread(self) -> None:
        """Note each field that nobody has taken, here and in all parts."""
        for name in self._left:
            self.notes.add(f"{self.path}.{name}", "is not known to convert, and is left out")
        self._left = {}
        for part in self._parts:
            part.tell_unread()

    def _wrong(self, name: str, value: Any, wanted: str) -> None:
        if value is not None:
            self.notes.add(f"{self.path}.{name}", f"is no {wanted}, and is left out")


def compact(pairs: Iterable[tuple[str, Any]]) -> Document:
    """Return the members that say something: no None, and nothing empty."""
    return {name: value for name, value in pairs if value is not None and value not in ({}, [], "", ())}


def named(items: Iterable[Any]) -> Iterator[Document]:
    """Yield the items that are objects with a name."""
    yield from (item for item in items if isinstance(item, dict) and item.get("name"))
