"""Handle files in folders that others can write to: links are not followed, reads are bounded, writes are atomic.

A link under a name that is ours would have us write to, or report on, what it points at; so would a second name of a
file (a hard link); a pipe blocks the process that opens it; a device has no end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from pathlib import Path
from typing import List

# The errors of `open_to_read` and `read_bounded` for something that is not written by us.
NOT_WRITTEN_BY_US = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EFBIG}
)
_QUIETLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _QUIETLY


def open_to_read(path: Path) -> int:
    """Open a regular file for reading; return its descriptor.

    Raises:
        OSError: it is not there, is a link, or is no regular file.
    """
    return _regular(os.open(path, os.O_RDONLY | _QUIETLY), is_written=False)


def open_to_write(path: Path, flags: int = os.O_APPEND | os.O_CREAT, mode: int = 0o644) -> int:
    """Open a regular file for reading and writing, at first at its end; return its descriptor. It is not truncated.

    Raises:
        OSError: it is a link, has another name, is no regular file, or may not be written.
    """
    return _regular(os.open(path, os.O_RDWR | flags | _QUIETLY, mode), is_written=True)


def _regular(descriptor: int, is_written: bool) -> int:
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and not (is_written and found.st_nlink > 1):
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        raise OSError(errno.EMLINK, "the file has another name (a hard link)")
    raise OSError(errno.EINVAL, "not a regular file")


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be opened (`open_to_read`), or has more than `most` bytes.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"the file has more than {most} bytes")
    return data


def replace(path: Path, data: bytes) -> None:
    """Make a file appear with all of its content on the disk, or not at all. What had its name, even a link, goes.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _QUIETLY, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()  # on a full disk, each try would leave one more
        raise
    sync_folder(path.parent)


def write_all(descriptor: int, data: memoryview) -> None:
    """Write every byte; the kernel takes at most 2 GiB at a time."""
    while data:
        data = data[os.write(descriptor, data[: 1 << 26]) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable (a file's own fsync does not: see open(2), rename(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_folder(path: Path) -> None:
    """Delete a folder with all that is in it, as far as that can be done. Links in it are deleted, not followed.

    A folder may be nested deeper than Python calls functions and than a process has descriptors. So what lies in a
    folder within is brought up to the top one before that folder is deleted.
    """
    try:
        top = os.open(path, _FOLDER)
    except OSError:
        return
    try:
        within = ["."]
        while within:
            name = within.pop()
            with contextlib.suppress(OSError):
                within += _empty(name, top)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        path.rmdir()


def _empty(name: str, top: int) -> List[str]:
    """Delete what is in a folder, and move its folders to the top if anything is in them. Return their new names."""
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        with os.scandir(folder) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        moved = []
        for entry, is_folder in entries:
            with contextlib.suppress(OSError):
                if not is_folder:
                    os.unlink(entry, dir_fd=folder)
                    continue
                try:
                    os.rmdir(entry, dir_fd=folder)
                except OSError:
                    there = uuid.uuid4().hex
                    os.rename(entry, there, src_dir_fd=folder, dst_dir_fd=top)
                    moved.append(there)
        return moved
    finally:
        os.close(folder)


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there.

    Raises:
        OSError: something else has its name, such as a link to a folder.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ENOTDIR, "it is a link to a folder", str(path))


def why_foreign(path: Path, is_replaced: bool = False) -> str:
    """Return why something of this name is none of ours; empty where it may be ours, or is not there.

    `is_replaced`: it will be replaced by `replace`, which leaves other names of the file as they are.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "is a folder"
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    return "has another name (a hard link)" if found.st_nlink > 1 and not is_replaced else ""
