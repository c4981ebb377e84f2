"""Bring one commit out of a git repository over HTTP, without git: no image has to have it, and nothing of it runs.

It speaks protocol version 2 (gitprotocol-v2), which servers have had since 2018: one request for what the server can,
one for the commit without its history. Hooks, filters, submodules and settings of a repository mean nothing here.
"""

from __future__ import annotations

from typing import Dict, Iterator, List

from trainmaster.wire import bundle
from trainmaster.wire.bundle import MOST_UNPACKED, BundleEntry, BundleError
from trainmaster.wire.git_pack import Object, objects
from trainmaster.wire.printable import printable
from trainmaster.wire.sources import GitSource, Secrets, SourceUnavailableError
from trainmaster.wire.web import ask, basic, shown

_SERVICE = "git-upload-pack"
_VERSION = {"Git-Protocol": "version=2", "User-Agent": "git/2.40 (trainmaster)"}  # some servers serve git alone
_FOLDER, _LINK, _MODULE = b"40000", b"120000", b"160000"
_PACK, _WORD, _ERROR = 1, 2, 3  # the channels of the answer
_MOST_DEPTH = 64
_NAME = 20  # bytes
_SHOWN = 300


def fetch(source: GitSource, secrets: Secrets) -> List[BundleEntry]:
    """Return the files of a commit.

    Raises:
        BundleError: there is no such repository or commit, or it holds what no code may.
        UnavailableError: the server does not answer.
    """
    found = objects(_pack(source, secrets))
    commit = found.get(source.commit)
    if commit is None or commit.kind != b"commit" or not commit.data.startswith(b"tree "):
        raise BundleError(f"{shown(source.repository)} did not send the commit {source.commit}")
    entries = list(_Files(found).below(commit.data[5:45].decode("ascii", "replace"), "", 0))
    if not entries:
        raise BundleError(f"the commit {source.commit} of {shown(source.repository)} has no files")
    bundle.check(entries)
    return entries


def _pack(source: GitSource, secrets: Secrets) -> bytes:
    repository = source.repository.rstrip("/")
    headers = {**_VERSION, **basic(repository, secrets)}
    told = ask(f"{repository}/info/refs?service={_SERVICE}", 1 << 20, headers)
    if not any(line.strip() == b"version 2" for line in _lines(told.data)):
        raise BundleError(f"{shown(repository)} is no git repository over HTTP with protocol version 2 (git 2.18)")
    moved = told.address.partition("/info/refs")[0]  # a renamed repository redirects
    is_there = moved.split("/")[:3] == repository.split("/")[:3]  # a password goes to its own host alone
    headers = {**_VERSION, **basic(moved, secrets if is_there else Secrets({}))}
    kinds = {"Content-Type": f"application/x-{_SERVICE}-request", "Accept": f"application/x-{_SERVICE}-result"}
    asked = {**headers, **kinds}
    return _sideband(ask(f"{moved}/{_SERVICE}", MOST_UNPACKED, asked, _request(source.commit)).data, source)


def _request(commit: str) -> bytes:
    wanted = ["no-progress", "ofs-delta", "deepen 1", f"want {commit}", "done"]
    lines = b"".join(b"%04x%s\n" % (len(word) + 5, word.encode()) for word in wanted)
    return b"0012command=fetch\n" + b"0001" + lines + b"0000"


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of an answer, each after its length in four hexadecimal digits; those below 4 are marks.

    Raises:
        UnavailableError: it is cut off.
        BundleError: it is something else, such as a page to log in.
    """
    at = 0
    while at < len(data):
        try:
            length = int(data[at : at + 4], 16)
        except ValueError:
            raise BundleError("what the server sent is no answer of git's") from None
        if at + max(4, length) > len(data):
            raise SourceUnavailableError("the answer of the git server is cut off")
        if length >= 4:  # noqa: PLR2004  with its own digits
            yield data[at + 4 : at + length]
        at += max(4, length)


def _sideband(answer: bytes, source: GitSource) -> bytes:
    parts, in_pack = [], False
    for line in _lines(answer):
        if line.startswith(b"ERR "):
            raise _refusal(line[4:], source)
        if not in_pack:
            in_pack = line.strip() == b"packfile"
        elif line[:1] == bytes([_PACK]):
            parts.append(line[1:])
        elif line[:1] == bytes([_ERROR]):
            raise _refusal(line[1:], source)
    return b"".join(parts)


def _refusal(said: bytes, source: GitSource) -> Exception:
    text = printable(said.decode(errors="replace").strip(), _SHOWN)
    where = shown(source.repository)
    if "not our ref" in text:
        return BundleError(f"{where} has no commit {source.commit}: push it, or correct code.git.commit")
    return SourceUnavailableError(f"{where} answers: {text}")


class _Files:
    """_Files goes through the folders of a commit."""

    def __init__(self, found: Dict[str, Object]) -> None:
        self._found = found
        self._files, self._bytes = 0, 0

    def below(self, tree: str, prefix: str, depth: int) -> Iterator[BundleEntry]:
        """Yield the files of a folder and of those in it."""
        if depth > _MOST_DEPTH:
            raise BundleError(f"{printable(prefix, _SHOWN)} lies more than {_MOST_DEPTH} folders deep")
        data, at = self._object(tree, b"tree"), 0
        while at < len(data):
            space, end = data.find(b" ", at), data.find(b"\0", at)
            mode, name = data[at:space], data[space + 1 : end].decode("utf-8", "surrogateescape")
            child, at = data[end + 1 : end + 1 + _NAME].hex(), end + 1 + _NAME
            if not 0 < space < end:
                raise BundleError("a folder of the commit is damaged")
            if mode == _FOLDER:
                yield from self.below(child, f"{prefix}{name}/", depth + 1)
            else:
                yield self._entry(mode, f"{prefix}{name}", child)

    def _entry(self, mode: bytes, path: str, child: str) -> BundleEntry:
        if mode == _MODULE:
            raise BundleError(
                f"{printable(path, _SHOWN)} is a submodule, which code.git does not bring: send the folder with "
                "trainmaster submit, which does"
            )
        data = self._object(child, b"blob")
        self._files += 1
        self._bytes += len(data)
        if self._files > bundle.MOST_FILES or self._bytes > MOST_UNPACKED:  # the same file may stand in many places
            raise BundleError(f"the commit has more than {bundle.MOST_FILES:,} files or {MOST_UNPACKED >> 20} MiB")
        if mode == _LINK:
            return BundleEntry(path, link=data.decode("utf-8", "surrogateescape"))
        return BundleEntry(path, data, executable=mode.endswith(b"755"))

    def _object(self, name: str, kind: bytes) -> bytes:
        found = self._found.get(name)
        if found is None or found.kind != kind:
            raise BundleError(f"the server did not send all of the commit: {kind.decode()} {name} is not there")
        return found.data
