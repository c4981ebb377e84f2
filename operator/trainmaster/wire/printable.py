"""Make foreign text safe for a terminal and a log: one line of visible letters.

Names of jobs and files, messages of exceptions and lines of ranks come from others: an escape sequence in them sets the
clipboard or the title, a carriage return overwrites what stands there, and a line feed forges a line. Everything that
prints or logs such text uses this module.
"""

from __future__ import annotations

import logging
import re

LONGEST = 1 << 16  # letters
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,40}m)")


def printable(text: str, most: int = LONGEST) -> str:
    """Return the text in one line; a letter that cannot be seen, or changes how others are seen, is escaped.

    So are letters that turn the direction of writing (U+202E), and what is no letter at all.
    """
    short = text if len(text) <= most else f"{text[:most]}..."
    if short.isprintable():
        return short
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in short)


def printable_in_colour(text: str) -> str:
    """Return the printable text, with the sequences that set colours left as they are."""
    parts = _COLOUR.split(text.expandtabs()[:LONGEST])
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(parts))


def printable_without_colour(text: str) -> str:
    """Return the printable text, with the sequences that set colours taken out."""
    return printable(_COLOUR.sub("", text.expandtabs()))


class OneLineFormatter(logging.Formatter):
    """Format a record as one line, and each line of its traceback indented by spaces, so that none can be forged.

    `ours`: only records of loggers whose name begins so are changed; a user's own are left as they are.
    """

    def __init__(self, form: str, ours: str = "") -> None:
        super().__init__(form)
        self._ours = ours

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        if not record.name.startswith(self._ours):
            return logging.Formatter(self._fmt).format(record)
        # A formatter keeps a traceback's text in the record for later formatters: ours must not be kept.
        own = logging.makeLogRecord(record.__dict__)
        own.exc_text = None
        return super().format(own)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's own name)
        """Return the first line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001, N802 (logging's own, with a type that only stubs have)
        """Return a traceback, indented."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 (logging's own name)
        """Return a stack, indented."""
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"  {printable(line)}" for line in text.split("\n"))
