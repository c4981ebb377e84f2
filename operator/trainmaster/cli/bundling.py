"""Make a bundle of a folder's code: which files there are, as git sees them, and what they are at this moment."""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainmaster.api.problem import reason
from trainmaster.wire import bundle, files
from trainmaster.wire.bundle import BundleEntry, BundleError

_NEVER = ("__pycache__", ".trainmaster")
_LARGEST_NAMED = 5
_OTHER_WAYS = (
    "leave out what is no code (.gitignore), keep data on a claim or in an object store, or build the code into an "
    "image (spec.workers.image) and submit with --no-code. Up to 128 MiB go into a bucket: --code-url s3://bucket/folder"
)


@dataclass(frozen=True)
class Bundle:
    """A bundle is what was packed of a folder, with what git says of it."""

    packed: bytes
    sha256: str
    files: int
    commit: str | None = None
    dirty: bool = False


def of_folder(folder: Path, most: int = bundle.MOST_BYTES) -> Bundle:
    """Return the bundle of a folder, of at most so many bytes when packed.

    Raises:
        BundleError: it cannot be one. The text names files and cure.
    """
    if not folder.is_dir():
        raise BundleError(f"{folder}: there is no such folder; name the folder of your code with --code")
    in_git = _in_git(folder)
    names = sorted(set(_of_git(folder) if in_git else _of_folder(folder)))
    found = {name: status for name in names if (status := _status(folder / name)) is not None}
    if not found:
        why = "git ignores all that is in it" if in_git and any(folder.iterdir()) else "it has no files"
        raise BundleError(f"{folder}: {why}; name the folder of your code with --code, or submit with --no-code")
    sizes = {name: status.st_size for name, status in found.items() if stat.S_ISREG(status.st_mode)}
    if sum(sizes.values()) > bundle.MOST_UNPACKED:
        raise BundleError(_too_large(folder, sizes, f"{sum(sizes.values()):,} bytes", bundle.MOST_UNPACKED))
    archive = bundle.pack([_entry(folder, name, status) for name, status in found.items()])
    packed = bundle.compress(archive)
    if len(packed) > most:
        raise BundleError(_too_large(folder, sizes, f"{len(packed):,} bytes when packed", most))
    commit, dirty = None, False
    if in_git:
        commit = _git(folder, "rev-parse", "--verify", "HEAD", check=False).stdout.decode().strip() or None
        dirty = bool(_git(folder, "status", "--porcelain", "--", ".").stdout.strip()) or not commit
    return Bundle(packed, bundle.digest(archive), len(found), commit, dirty)


def _too_large(folder: Path, sizes: dict[str, int], has: str, most: int) -> str:
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_LARGEST_NAMED]
    named = "\n".join(f"  {sizes[name]:>14,}  {name}" for name in largest)
    return (
        f"{folder}: the code has {has}, and {most >> 20} MiB is the most that a job can carry. The largest files are\n"
        f"{named}\nYou can {_OTHER_WAYS}"
    )


def _status(path: Path) -> os.stat_result | None:
    """Return what a path is; None where it is not there: git lists what was deleted, too."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BundleError(f"{path}: {reason(error)}") from None


def _entry(folder: Path, name: str, status: os.stat_result) -> BundleEntry:
    path = folder / name
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise BundleError(f"{path}: a file with setuid or setgid is not sent; take the bit away (chmod ug-s)")
    try:
        if stat.S_ISLNK(status.st_mode):
            return BundleEntry(name, link=str(path.readlink()))
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{path}: is neither a file nor a link, and is not sent; move it out of the folder")
        data = files.read_bounded(path, bundle.MOST_UNPACKED)
    except OSError as error:
        raise BundleError(f"{path}: {reason(error)}") from None
    return BundleEntry(name, data, bool(status.st_mode & 0o111))


def _of_folder(folder: Path) -> Iterator[str]:
    """Yield all files of a folder that git does not know, but for those in dot folders and caches."""
    for above, folders, names in os.walk(folder, onerror=_unread):
        here = Path(above)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in (*_NEVER, *links)]
        yield from ((here / name).relative_to(folder).as_posix() for name in (*names, *links))


def _unread(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be read: what is in it would be missing in the pods."""
    raise BundleError(f"{error.filename}: {reason(error)}; make it readable, or move it out of the folder") from None


def _of_git(folder: Path, prefix: str = "") -> Iterator[str]:
    """Yield the files that git has or would take; of a repository within this one (a submodule) too."""
    listed = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if unread := re.search(rb"could not open directory '(.*)/': (.*)", listed.stderr):
        where, why = os.fsdecode(unread[1]), os.fsdecode(unread[2]).lower()
        raise BundleError(f"{folder / where}: {why}; make it readable, or leave it out by .gitignore")
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        inner = folder / name
        if any(part in _NEVER for part in name.split("/")):
            continue
        if inner.is_dir() and not inner.is_symlink():
            # Without a .git of its own, git would speak of the repository around it, without end.
            yield from _of_git(inner, f"{prefix}{name.rstrip('/')}/") if (inner / ".git").exists() else ()
        else:
            yield f"{prefix}{name}"


def _in_git(folder: Path) -> bool:
    try:
        asked = _git(folder, "rev-parse", "--is-inside-work-tree", check=False)
    except FileNotFoundError:
        return False
    if asked.returncode and b"not a git repository" not in asked.stderr:
        raise BundleError(f"{folder}: git says: {os.fsdecode(asked.stderr).strip()}")
    return asked.stdout.strip() == b"true"


def _git(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """Run git, without what a repository's own settings could have it start."""
    command = ["git", "-c", "core.fsmonitor=false", *words]
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if check and done.returncode:
        raise BundleError(f"{folder}: git {words[0]}: {os.fsdecode(done.stderr).strip()}")
    return done
