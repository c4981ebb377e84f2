"""Where the control side's own log goes during `trainmaster run`: a file, and its warnings also to the view.

A traceback of ours is for the file: it helps nobody in the middle of a live view.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from trainmaster.core.actions import PostEvent
from trainmaster.local.session import Audience
from trainmaster.wire.files import open_to_write
from trainmaster.wire.printable import OneLineFormatter


@contextlib.contextmanager
def logging_to(path: Path, audience: Audience) -> Iterator[None]:
    """For the length of a `with`."""
    root, loop = logging.getLogger(), logging.getLogger("trainmaster.loop")
    file, told = _File(path, delay=True), _Told(audience, path)
    file.setFormatter(OneLineFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root.addHandler(file)
    loop.addHandler(told)
    try:
        yield
    finally:
        loop.removeHandler(told)
        root.removeHandler(file)
        file.close()


class _File(logging.FileHandler):
    """On a full disk, or where it may not be written, the log is what can be done without."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(os.fdopen(open_to_write(Path(self.baseFilename)), "ab"), self.encoding, self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        """Opens the file, the first time."""
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 logging's own name
        """Nothing."""


class _Told(logging.Handler):
    def __init__(self, audience: Audience, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._audience = audience
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        where = f" (see {self._path})" if record.exc_info else ""
        self._audience.event(PostEvent("Warning", "Trouble", f"{record.getMessage()}{where}"))
