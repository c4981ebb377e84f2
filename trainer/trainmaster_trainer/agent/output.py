"""Pass ranks' output from their pipes to the agent's stdout and stderr: whole lines, marked where ranks are several.

One thread writes everything, the agent's own lines too, so no line is cut by another. If the agent's output is
not read, lines are thrown away after some seconds and counted: a rank must not wait for ever on a reader.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import selectors
import threading
from dataclasses import dataclass
from typing import Callable, Deque, Dict

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
_AT_ONCE = select.PIPE_BUF  # a pipe that is writable takes that much without blocking
_PATIENCE_SECONDS = 5.0
_TAIL = 4096  # bytes of a stream that are kept for who asks why its rank has ended
_NEWEST = 1 << 14  # bytes that are kept of a followed stream until they are taken
_TAIL_SECONDS = 1.0  # the writing thread may wait for a reader


@dataclass
class _Stream:
    """_Stream is one pipe of one rank. Without a prefix bytes go through as they come."""

    source: int
    target: int
    prefix: bytes
    partial: bytes = b""
    tail: bytes = b""  # the last that came


class Output:
    """Output is the writing thread and what it is told to do."""

    def __init__(self, stdout: int = 1, stderr: int = 2, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._patience = patience_seconds
        self._selector = selectors.DefaultSelector()
        self._calls: Deque[Callable[[], None]] = collections.deque()
        reader, self._waker = os.pipe()
        os.set_blocking(reader, False)
        self._selector.register(reader, selectors.EVENT_READ, None)
        self._reader = reader
        self._stalled = False
        self._last_byte = b"\n"
        self._lost_lines = 0
        self._tails: Dict[int, bytes] = {}  # of streams that are closed, until they are asked for
        self._fresh: Dict[int, bytes] = {}  # by descriptor: what came of followed streams since it was taken
        self._lock = threading.Lock()  # of that
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def add(self, stdout: int, stderr: int, prefix: str) -> None:
        """Pass on what comes from these two pipes; they are closed here at their end."""
        for source, target in ((stdout, self._stdout), (stderr, self._stderr)):
            os.set_blocking(source, False)
            stream = _Stream(source, target, prefix.encode())
            self._call(lambda stream=stream: self._watch(stream))  # type: ignore[misc]

    def follow(self, stdout: int, stderr: int) -> None:
        """Keep the newest of what comes from these two pipes for `take`."""
        with self._lock:
            self._fresh.update({stdout: b"", stderr: b""})

    def take(self, stdout: int, stderr: int, whole: bool = True) -> str:
        """Return what has come from these two since the last time, or the newest of it.

        Only `whole` lines, or at the end of the pipes all there is.
        """
        taken = b""
        with self._lock:
            for source in (stdout, stderr):
                data = self._fresh.get(source, b"")
                end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 if whole else len(data)
                taken += data[:end] + b"\n"
                if whole and source in self._fresh:
                    self._fresh[source] = data[end:]
                else:
                    self._fresh.pop(source, None)  # another pipe may get its number
        return taken.decode(errors="replace").strip()

    def finish(self, stdout: int, stderr: int) -> None:
        """Pass on what is left of a rank that has ended, and do not wait for what it may have started."""
        for source in (stdout, stderr):
            self._call(lambda source=source: self._finish(source))  # type: ignore[misc]

    def finish_and_tell(self, stdout: int, stderr: int) -> str:
        """Do as `finish`; return the end of what the rank wrote to its standard error, as far as it could be read."""
        ended, found = threading.Event(), [b""]

        def tell() -> None:
            self._finish(stdout)
            self._finish(stderr)
            found[0] = self._tails.pop(stderr, b"")
            ended.set()

        self._call(tell)
        ended.wait(_TAIL_SECONDS)
        return found[0].decode(errors="replace").strip()

    def say(self, text: str) -> None:
        """Write a line of the agent's own to stderr."""
        self._call(lambda: self._say(text))

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._call(self._end)
        self._thread.join(self._patience)

    def _call(self, callback: Callable[[], None]) -> None:
        self._calls.append(callback)
        os.write(self._waker, b"\0")

    def _run(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._read(key.data)
            # After the pipes: what a rank said before its end comes before the end.
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 4096)
            while self._calls:
                self._calls.popleft()()

    def _end(self) -> None:
        for key in [*self._selector.get_map().values()]:
            if key.data is not None:
                self._finish(key.fd)
        self._ending = True

    def _watch(self, stream: _Stream) -> None:
        self._selector.register(stream.source, selectors.EVENT_READ, stream)

    def _finish(self, source: int) -> None:
        key = self._selector.get_map().get(source)
        while key is not None and self._read(key.data):
            pass
        if source in self._selector.get_map():
            self._close(self._selector.get_map()[source].data)

    def _read(self, stream: _Stream) -> bool:
        """Pass on what is there; return False when nothing was, or no more will come."""
        try:
            data = os.read(stream.source, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(stream)
            return False
        stream.tail = (stream.tail + data)[-_TAIL:]
        with self._lock:
            if stream.source in self._fresh:
                self._fresh[stream.source] = (self._fresh[stream.source] + data)[-_NEWEST:]
        if not stream.prefix:
            self._write(stream.target, data)
            return True
        *lines, stream.partial = (stream.partial + data).split(b"\n")
        if len(stream.partial) > _LONGEST_LINE:
            lines, stream.partial = [*lines, stream.partial], b""
        if lines:
            self._write(stream.target, b"".join(stream.prefix + line + b"\n" for line in lines))
        return True

    def _close(self, stream: _Stream) -> None:
        if stream.partial:
            self._write(stream.target, stream.prefix + stream.partial + b"\n")
        self._selector.unregister(stream.source)
        self._tails[stream.source] = stream.tail  # by descriptor, whose next user overwrites it
        os.close(stream.source)

    # --- writing ---

    def _say(self, text: str) -> None:
        start = "" if self._last_byte == b"\n" else "\n"
        self._write(self._stderr, f"{start}trainmaster agent: {text}\n".encode(errors="replace"))

    def _write(self, target: int, data: bytes) -> None:
        if self._lost_lines:
            # One look for both: what comes after a loss is written when the loss is told, or is lost too.
            if not self._writable(target, 0 if self._stalled else self._patience):
                self._stalled = True
                self._lost_lines += data.count(b"\n")
                return
            lost, self._lost_lines = self._lost_lines, 0
            self._write(target, f"trainmaster agent: {lost} lines lost, nobody read this output\n".encode())
        for start in range(0, len(data), _AT_ONCE):
            chunk = data[start : start + _AT_ONCE]
            if not self._writable(target, 0 if self._stalled else self._patience) or not self._put(target, chunk):
                self._stalled = True
                self._lost_lines += data.count(b"\n", start)
                return
            self._stalled = False
            self._last_byte = chunk[-1:]

    def _writable(self, target: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(target, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def _put(self, target: int, chunk: bytes) -> bool:
        try:
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
        except OSError:
            return False  # the reader has gone; the ranks go on
        return True
