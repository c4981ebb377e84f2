"""Send the control side's own log during `trainmaster run` to a file, and warnings of the loop also to the view.

Our own tracebacks go to the file only.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from trainmaster.core.states.actions import PostEvent
from trainmaster.local.local_run import Audience
from trainmaster.wire.files import open_to_write
from trainmaster.wire.printable import OneLineFormatter


@contextlib.contextmanager
def logging_to(path: Path, audience: Audience) -> Iterator[None]:
    """Log to the file and the view for the time of a `with`."""
    root, loop = logging.getLogger(), logging.getLogger("trainmaster.loop")
    file, told = _LogFile(path, delay=True), _Told(audience, path)
    file.setFormatter(OneLineFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root.addHandler(file)
    loop.addHandler(told)
    try:
        yield
    finally:
        loop.removeHandler(told)
        root.removeHandler(file)
        file.close()


class _LogFile(logging.FileHandler):
    """Write the log file. If it cannot be written (a full disk), its lines are dropped."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(os.fdopen(open_to_write(Path(self.baseFilename)), "ab"), self.encoding, self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; the first one opens the file."""
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 logging's own name
        """Ignore the error."""


class _Told(logging.Handler):
    def __init__(self, audience: Audience, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._audience = audience
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Show the record as an event of one line."""
        where = f" (see {self._path})" if record.exc_info else ""
        self._audience.event(PostEvent("Warning", "Trouble", f"{record.getMessage()}{where}"))
