"""Write standard output and standard error of `trainmaster run`, each in a thread of its own.

A pipe that is not read, or a terminal that is held (Ctrl-S), must not block the loop that restarts workers and answers
Ctrl-C. So lines wait in memory for a slow reader. If there has been no room for some seconds, lines are dropped and
counted. Standard library only, because this is imported first.
"""

import contextlib
import errno
import io
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ROOM = 16 << 20  # bytes that may wait
_PATIENCE_SECONDS = 5.0  # until lines without room are dropped
_LAST_SECONDS = 10.0  # at the end of the run, for waiting lines of which none is read
_AT_ONCE = select.PIPE_BUF


class ProcessOutput(io.BufferedIOBase):
    """Write to one file in a thread. What was written between two flushes is kept as a whole, or dropped as a whole."""

    def __init__(self, descriptor: int, room: int = _ROOM, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._descriptor = descriptor
        self._room = room
        self._patience = patience_seconds
        self._gathered = bytearray()
        self._waiting = bytearray()
        self._piece = b""  # what the thread is writing
        self._stalled = False
        self._error: OSError | None = None
        self._changed = threading.Condition()
        self._is_over = False
        self.lost_lines = 0
        self._thread = threading.Thread(
            target=self._run, name="process_output", daemon=True
        )  # a daemon, because it may be stuck for ever
        try:
            self._thread.start()
        except RuntimeError:  # Python raises it if no thread can be started
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    @property
    def name(self) -> int:
        """Return the file descriptor as the name, as Python's own standard streams do."""
        return self._descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether the file is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Keep the data for the next flush."""
        with self._changed:
            self._gathered += data
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Hand the data over to the thread, or drop it if there is no room.

        Raises:
            OSError: data since the last flush could not be written.
        """
        with self._changed:
            patience = 0 if self._stalled else self._patience
            if self._changed.wait_for(lambda: len(self._waiting) < self._room, patience):
                self._waiting += self._gathered
            else:
                self._stalled = True
                self.lost_lines += self._gathered.count(b"\n")
            self._gathered.clear()
            self._changed.notify_all()
            error, self._error = self._error, None
        if error:
            raise error

    def drain(self, seconds: float | None = _LAST_SECONDS) -> None:
        """Wait until all is written. If nothing was read for so many seconds (None: no limit), drop the rest.

        Raises:
            OSError: something could not be written.
        """
        with self._changed:
            while self._left and self._gets_on(seconds):
                pass
            if self._left:
                self._stalled = True
                self._drop()
        self.flush()

    def end(self) -> None:
        """End the thread. To be called after `drain`.

        If Python exits while the thread runs, pthread_exit loads a library (libgcc_s), and where no file can be opened
        the whole process is aborted.
        """
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            is_stuck = self._left > 0
        if not is_stuck:
            self._thread.join()

    @property
    def _left(self) -> int:
        return len(self._piece) + len(self._waiting)

    def _gets_on(self, seconds: float | None) -> bool:
        before = self._left
        return self._changed.wait_for(lambda: self._left < before, 0 if seconds and self._stalled else seconds)

    def _drop(self) -> None:
        self.lost_lines += self._piece.count(b"\n") + self._waiting.count(b"\n")
        self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    return
                self._piece = bytes(self._waiting[:_AT_ONCE])
                del self._waiting[:_AT_ONCE]
            error = _put(self._descriptor, self._piece)
            with self._changed:
                if error:
                    self._error = error
                    self._drop()
                self._stalled = False
                self._piece = b""
                self._changed.notify_all()


def _put(descriptor: int, piece: bytes) -> OSError | None:
    try:
        while piece:
            piece = piece[os.write(descriptor, piece) :]
    except OSError as error:
        return error
    return None


class ProcessOutputs:
    """Replace both standard streams for the time of a `with`.

    If both are one file, they share one object, which keeps the order.
    """

    def __init__(self) -> None:
        self._before: tuple[TextIO, TextIO] = sys.stdout, sys.stderr
        self.stdout = ProcessOutput(sys.stdout.fileno())
        one = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        self._stderr = self.stdout if one else ProcessOutput(sys.stderr.fileno())

    def __enter__(self) -> Self:
        sys.stdout, sys.stderr = _text(self.stdout, sys.stdout), _text(self._stderr, sys.stderr)
        return self

    def __exit__(self, *_: object) -> None:
        for stream, process_output in ((sys.stdout, self.stdout), (sys.stderr, self._stderr)):
            with contextlib.suppress(OSError):
                stream.flush()
            with contextlib.suppress(OSError):
                process_output.drain()
        sys.stdout, sys.stderr = self._before
        for process_output in (self.stdout, self._stderr):
            process_output.end()


def _text(process_output: ProcessOutput, like: TextIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(process_output, encoding=like.encoding, errors=like.errors, line_buffering=True)
