"""A commit comes out of a real git server without git, the same as git has it, or with the reason why not."""

import hashlib
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster.cli import bundling
from trainmaster.wire import bundle, git_fetch, git_pack
from trainmaster.wire.bundle import BundleError
from trainmaster.wire.sources import GitSource, Secrets, SourceUnavailableError

from tests.git_server import GitServer, commit, git

NONE = Secrets({})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    (tmp_path / "code").mkdir()
    with GitServer(tmp_path).serving() as one:
        yield one


def files(folder: Path) -> None:
    """Files of all kinds, and one that is like another, so that git stores a delta."""
    (folder / "pkg" / "deep").mkdir(parents=True)
    (folder / "pkg" / "deep" / "модель.py").write_text("".join(f"line {number}\n" for number in range(5000)))
    (folder / "pkg" / "like.py").write_text("".join(f"line {number}\n" for number in range(4999)) + "end\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "empty").write_bytes(b"")
    (folder / "again").symlink_to("pkg/like.py")


def test_a_commit_is_what_submit_would_send_of_it(server: GitServer, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    files(folder)
    name = commit(folder)
    (folder / "later").write_text("not in that commit")
    commit(folder)
    git(folder, "gc", "--quiet", "--aggressive")
    found = git_fetch.fetch(GitSource(f"{server.url}/code/.git", name), NONE)
    (folder / "later").unlink()
    assert bundle.digest(bundle.pack(found)) == bundling.of_folder(folder).sha256
    assert "later" not in {entry.path for entry in found}


def test_what_is_not_there_is_said(server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "code" / "a").write_text("a")
    name = commit(tmp_path / "code")
    with pytest.raises(BundleError, match=r"has no commit f{40}: push it, or correct code.git.commit"):
        git_fetch.fetch(GitSource(f"{server.url}/code/.git", "f" * 40), NONE)
    with pytest.raises(BundleError, match=r"answers 404 .*: it is not there"):
        git_fetch.fetch(GitSource(f"{server.url}/other.git", name), NONE)
    with pytest.raises(
        SourceUnavailableError, match=r"http://127.0.0.1:1/x.git/info/refs cannot be reached: .*refused"
    ):
        git_fetch.fetch(GitSource("http://127.0.0.1:1/x.git", name), NONE)
    with pytest.raises(BundleError, match=r"did not send the commit"):
        git_fetch.fetch(GitSource(f"{server.url}/code/.git", git(tmp_path / "code", "rev-parse", "HEAD^{tree}")), NONE)
    server.failing = 1
    with pytest.raises(SourceUnavailableError, match=r"answers 503"):
        git_fetch.fetch(GitSource(f"{server.url}/code/.git", name), NONE)


def test_a_password_opens_it_and_stands_in_no_message(server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "code" / "a").write_text("a")
    source = GitSource(f"{server.url}/code/.git", commit(tmp_path / "code"))
    server.password = "t0ken"
    assert git_fetch.fetch(source, Secrets({"username": "me", "password": "t0ken"}))
    for secrets in (NONE, Secrets({"password": "wr0ng"})):
        with pytest.raises(BundleError, match=r"answers 401.*secretName") as refused:
            git_fetch.fetch(source, secrets)
        assert "wr0ng" not in str(refused.value) + repr(secrets)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "pkg/../../x"])
def test_a_link_that_leads_out_is_refused(server: GitServer, tmp_path: Path, target: str) -> None:
    (tmp_path / "code" / "link").symlink_to(target)
    with pytest.raises(BundleError, match=r"the link link leads out of the folder"):
        git_fetch.fetch(GitSource(f"{server.url}/code/.git", commit(tmp_path / "code")), NONE)


def test_a_submodule_is_named(server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "code" / "inner").mkdir()
    (tmp_path / "code" / "inner" / "a").write_text("a")
    commit(tmp_path / "code" / "inner")
    with pytest.raises(BundleError, match=r"inner is a submodule"):
        git_fetch.fetch(GitSource(f"{server.url}/code/.git", commit(tmp_path / "code")), NONE)


def test_a_file_in_too_many_places_is_a_bomb(server: GitServer, tmp_path: Path) -> None:
    """Each folder names the one below it ten times: eleven objects, and 10^8 files."""
    folder = tmp_path / "code"
    git(folder, "init", "--quiet")
    (folder / "a").write_text("a")
    below = f"100644 blob {git(folder, 'hash-object', '-w', 'a')}"
    for _ in range(8):
        (tmp_path / "tree").write_text("".join(f"{below}\tname{number}\n" for number in range(10)))
        with (tmp_path / "tree").open() as lines:
            below = f"040000 tree {make_tree(folder, lines.read())}"
    name = git(folder, "commit-tree", below.split()[-1], "-m", "bomb")
    with pytest.raises(BundleError, match=r"more than 10,000 files"):
        git_fetch.fetch(GitSource(f"{server.url}/code/.git", name), NONE)


def make_tree(folder: Path, lines: str) -> str:
    return (
        subprocess.run(["git", "mktree"], cwd=folder, input=lines.encode(), capture_output=True, check=True)
        .stdout.decode()
        .strip()
    )


def pack(*objects: bytes) -> bytes:
    data = b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big") + b"".join(objects)
    return data + hashlib.sha1(data).digest()  # noqa: S324


def header(kind: int, size: int) -> bytes:
    first, size = (kind << 4) | (size & 15), size >> 4
    parts = []
    while size:
        parts.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    return bytes([*parts, first])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PACK", "damaged"),
        (pack(header(3, 3) + zlib.compress(b"abc"))[:-1] + b"x", "damaged"),
        (pack(header(3, 2) + zlib.compress(b"abc")), "larger than it says"),
        (pack(header(3, 4) + zlib.compress(b"abc")), "smaller than it says"),
        (pack(header(3, 1 << 40) + zlib.compress(b"abc")), "more than 128 MiB"),
        (pack(header(3, 3) + zlib.compress(b"abc")[:4]), "damaged"),
        (pack(header(5, 3) + zlib.compress(b"abc")), "unknown kind"),
        (pack(header(7, 3) + bytes(20) + zlib.compress(b"\x01\x01a")), "not in it"),
        (pack(header(6, 2) + b"\x7f" + zlib.compress(b"ab")), "not in it"),
        (b"PACK" + (2).to_bytes(4, "big") + b"\xff" * 4, "damaged"),
    ],
)
def test_a_pack_that_lies_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BundleError, match=why):
        git_pack.objects(data)


def test_deltas_that_grow_are_bounded() -> None:
    """128 bytes that say: copy the base sixteen times, on and on, each on the one before."""
    base = header(3, 1 << 20) + zlib.compress(bytes(1 << 20))
    size, objects, places = 1 << 20, [base], [12]
    for _ in range(3):
        delta = length(size) + length(size * 16) + b"".join(copy(offset) for _ in range(16) for offset in blocks(size))
        place = places[-1] + len(objects[-1])
        objects.append(header(6, len(delta)) + distance(place - places[-1]) + zlib.compress(delta))
        places.append(place)
        size *= 16
    with pytest.raises(BundleError, match=r"more than 128 MiB|damaged"):
        git_pack.objects(pack(*objects))


def blocks(size: int) -> range:
    return range(0, min(size, 1 << 20), 0x10000)


def copy(offset: int) -> bytes:
    return bytes([0x8F, *offset.to_bytes(4, "little")])


def length(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def distance(value: int) -> bytes:
    parts = [value & 0x7F]
    while value := value >> 7:
        value -= 1
        parts.insert(0, value & 0x7F | 0x80)
    return bytes(parts)
