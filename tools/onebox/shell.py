"""Commands, locks and progress lines: the small tools that every module of this package uses."""

import contextlib
import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


class OneboxError(Exception):
    """Something that the reader can act on: the message says what happened and what to do."""


def run(
    *command: str | Path,
    stdin: str | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> str:
    """Run a command to its end and return what it printed; a failure carries its last lines."""
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise OneboxError(f"`{' '.join(words)}` failed with {done.returncode}:\n{tail}")
    return done.stdout


def succeeds(*command: str | Path) -> bool:
    """Say whether a command ends well; what it prints does not matter."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def write_if_changed(file: Path, content: str) -> None:
    """Write a configuration file only when it differs: kube-proxy ends itself when its file is touched."""
    if not file.exists() or file.read_text() != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def say(line: str) -> None:
    """Print one line of progress, at once, where a pipe would hold it back."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Announce a piece of work, and say how long it took when it is done."""
    say(f"        {title} ...")
    began = time.monotonic()
    yield
    say(f"{time.monotonic() - began:6.1f}s {title}: done")


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let one process at a time into a piece of work; the kernel drops the lock when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"        waiting for another process that holds {path} ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
