"""Tell a bad checkpoint from a temporary error while one is read.

A checkpoint that is proven to be bad is passed over for the one before it. What only cannot be read now (a stale NFS
handle, no descriptor left, no memory) is an error of its own, and the attempt ends over it: going on from an older
checkpoint would give up all steps since for good.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from trainmaster.wire.files import NOT_WRITTEN_BY_US

# Not there, no regular file; and EIO: it may be temporary, but a bad sector returns it for ever.
_BAD = NOT_WRITTEN_BY_US | {errno.EIO}


class CorruptCheckpointError(Exception):
    """Report a checkpoint that cannot be trusted. The text names what is wrong with it."""


@contextmanager
def telling(path: Path, done: str) -> Iterator[None]:
    """Wrap all that reads a file, and sort its errors. `done`: what is done to it, for the message ("opened").

    Raises:
        CorruptCheckpointError: it is not there, or is no regular file, or the disk has lost it.
        OSError: it cannot be read now.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _BAD:
            raise CorruptCheckpointError(f"{path.name} cannot be {done}: {error.strerror}") from None
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # not every call names the file
