"""Read an archive of code that lies at a URL: what `trainmaster submit --code-url` put there, or one of `tar czf`.

Its folders and owners mean nothing, and modes only whether a file can be executed. What would lead out is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path
from typing import List, Optional
from urllib.parse import unquote, urlsplit

from trainmaster.wire import aws, bundle, web
from trainmaster.wire.bundle import MOST_UNPACKED, BundleEntry, BundleError
from trainmaster.wire.files import read_bounded
from trainmaster.wire.printable import printable
from trainmaster.wire.sources import Secrets, UrlSource

MOST_PACKED = MOST_UNPACKED
_GZIP = b"\x1f\x8b"  # how what it has packed begins


def fetch(source: UrlSource, secrets: Secrets) -> List[BundleEntry]:
    """Return the files of an archive.

    Raises:
        BundleError: it is not there, is another one than was meant, or holds what no code may.
        UnavailableError: the server does not answer.
    """
    packed = _bytes(source, secrets)
    found = hashlib.sha256(packed).hexdigest()
    if found != source.sha256:
        raise BundleError(f"the SHA-256 of {web.shown(source.address)} is {found}, and not {printable(source.sha256)}")
    return entries(packed)


def _bytes(source: UrlSource, secrets: Secrets) -> bytes:
    parts = urlsplit(source.address)
    if parts.scheme == "s3":
        return aws.request("GET", source.address, source.endpoint, secrets, most=MOST_PACKED).data
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        try:
            if path.stat().st_size > MOST_PACKED:
                raise BundleError(f"{path} has more than {MOST_PACKED >> 20} MiB")
            return read_bounded(path, MOST_PACKED)
        except OSError as error:
            raise BundleError(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None
    return web.ask(source.address, MOST_PACKED, web.basic(source.address, secrets)).data


def entries(packed: bytes) -> List[BundleEntry]:
    """Return the files of an archive, packed by gzip or not.

    Raises:
        BundleError: it is no archive, or holds what no code may.
    """
    archive = bundle.decompress(packed) if packed[:2] == _GZIP else packed
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            found = [entry for member in opened if (entry := _entry(opened, member)) is not None]
    except (tarfile.TarError, EOFError, OverflowError, UnicodeError, ValueError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"it is no tar archive: {error}") from None
    if not found:
        raise BundleError("the archive has no files")
    bundle.check(found)
    return found


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Optional[BundleEntry]:
    """Return a file of an archive; None for a folder, which comes with its files."""
    path = member.name
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    if member.isdir():
        return None
    if member.type == tarfile.SYMTYPE:
        return BundleEntry(path, link=member.linkname)
    file = archive.extractfile(member) if member.isreg() and not member.issparse() else None
    if file is None:
        raise BundleError(f"{printable(member.name)} is neither a file nor a symbolic link")
    return BundleEntry(path, file.read(), bool(member.mode & stat.S_IXUSR))
