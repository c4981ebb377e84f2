"""Pack files into a bundle of code, and read one: the same bytes on any machine, checked at both ends.

A bundle is a tar archive of regular files and links, in the order of their names, without times and owners. Its SHA-256
is taken before compression, as compressors differ from machine to machine. Standard library only.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from trainmaster.wire.printable import printable

MOST_BYTES = 8 << 20
"""Of a compressed bundle: what lies in ConfigMaps lies in etcd, which many jobs share."""
MOST_UNPACKED = 128 << 20
MOST_FILES = 10_000
PART_BYTES = 900 << 10
"""Of one ConfigMap, which takes 1 MiB with its names."""
PART_KEY = "part"

_PLAIN, _EXECUTABLE = 0o644, 0o755
_LONGEST_NAME = 255


class BundleError(ValueError):
    """The files make no bundle, or the bytes are none. The text says why."""


@dataclass(frozen=True)
class BundleEntry:
    """An entry is a file or, where `link` is set, a symbolic link. `path` is relative, with / between its parts."""

    path: str
    data: bytes = b""
    executable: bool = False
    link: Optional[str] = None


def check(entries: Sequence[BundleEntry]) -> None:
    """Refuse entries that would not lie in one folder, each at a place of its own.

    Raises:
        BundleError: a path or a link leads out of the folder, or two entries want one place.
    """
    if len(entries) > MOST_FILES:
        raise BundleError(f"there are {len(entries)} files, and a bundle has at most {MOST_FILES}")
    taken: Dict[str, BundleEntry] = {}
    for entry in entries:
        _check_path(entry.path)
        if entry.link is not None and _leads_out(entry.path, entry.link):
            raise BundleError(f"the link {printable(entry.path)} leads out of the folder, to {printable(entry.link)}")
        if entry.path in taken:
            raise BundleError(f"{printable(entry.path)} comes twice")
        taken[entry.path] = entry
    for entry in entries:
        above = entry.path.rpartition("/")[0]
        while above:
            if above in taken:
                raise BundleError(f"{printable(entry.path)} lies below {printable(above)}, which is no folder")
            above = above.rpartition("/")[0]


def _check_path(path: str) -> None:
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BundleError(f"{printable(path)} is no path inside of the folder")
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        raise BundleError(f"the name {printable(path)} is not UTF-8: rename the file") from None
    if longest > _LONGEST_NAME:
        raise BundleError(f"the name {printable(path[:80])}... is too long")


def _leads_out(path: str, target: str) -> bool:
    """Return whether a link leads out of the folder.

    A `..` after a name is refused: where the name is a link itself, no text tells where it leads.
    """
    parts = target.split("/")
    upwards = [part == ".." for part in parts if part not in ("", ".")]
    rises = sum(upwards)
    in_front = all(upwards[:rises])
    return not target or target.startswith("/") or "\0" in target or not in_front or rises > path.count("/")


def pack(entries: Sequence[BundleEntry]) -> bytes:
    """Return the archive of these entries, uncompressed.

    Raises:
        BundleError: see `check`.
    """
    check(entries)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(entries, key=lambda one: one.path.encode()):
            info = tarfile.TarInfo(entry.path)
            info.mode = _EXECUTABLE if entry.executable else _PLAIN
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            else:
                info.size = len(entry.data)
            archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def digest(archive: bytes) -> str:
    """Return the SHA-256 of an archive, by which the bundle is known."""
    return hashlib.sha256(archive).hexdigest()


def compress(archive: bytes) -> bytes:
    """Return the archive as it travels."""
    return gzip.compress(archive, 9, mtime=0)


def split(packed: bytes) -> List[bytes]:
    """Return the parts that fit into a ConfigMap each."""
    return [packed[start : start + PART_BYTES] for start in range(0, len(packed), PART_BYTES)]


def read(packed: bytes, sha256: str) -> List[BundleEntry]:
    """Return the entries of a bundle that has this SHA-256.

    Raises:
        BundleError: it has another one, or it holds what no bundle may.
    """
    archive = decompress(packed)
    found = digest(archive)
    if found != sha256:
        raise BundleError(f"its SHA-256 is {found}, and not {printable(sha256)}: it is not what was sent")
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            entries = [_entry(opened, member) for member in opened]
    except (tarfile.TarError, EOFError, OverflowError, UnicodeError) as error:
        raise BundleError(f"it is no tar archive: {error}") from None
    check(entries)
    return entries


def decompress(packed: bytes) -> bytes:
    """Return what gzip has packed.

    Raises:
        BundleError: it is damaged, or more than code may be.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            archive = file.read(MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BundleError(f"it is damaged: {error}") from None
    if len(archive) > MOST_UNPACKED:
        raise BundleError(f"unpacked it has more than {MOST_UNPACKED >> 20} MiB")
    return archive


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BundleEntry:
    name = printable(member.name)
    if member.mode & ~_EXECUTABLE:
        raise BundleError(f"{name} has the mode {member.mode:o}, and a bundle has {_PLAIN:o} and {_EXECUTABLE:o} only")
    if member.type == tarfile.SYMTYPE:
        return BundleEntry(member.name, link=member.linkname)
    file = archive.extractfile(member) if member.type == tarfile.REGTYPE and not member.issparse() else None
    if file is None:
        raise BundleError(f"{name} is neither a file nor a symbolic link")
    return BundleEntry(member.name, file.read(), bool(member.mode & 0o100))


def write(entries: Sequence[BundleEntry], folder: Path) -> None:
    """Write the entries into a folder that is made for them, or is empty.

    Raises:
        OSError: that cannot be done, or something is there already.
    """
    check(entries)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.link is not None:
            path.symlink_to(entry.link)
            continue
        mode = _EXECUTABLE if entry.executable else _PLAIN
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            file.write(entry.data)
