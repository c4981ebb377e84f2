"""Which files of a folder are sent with a job: those of git, else all but dot folders and caches."""

import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster.cli import bundling
from trainmaster.wire import bundle
from trainmaster.wire.bundle import BundleError


def fill(folder: Path, *names: str) -> Path:
    """Files with their names as content."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def git(folder: Path, *words: str) -> str:
    """In a repository that knows nothing of this machine's settings."""
    who = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"), "t")
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", *words]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **who, **alone}, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A committed file, a changed one, a deleted one, an untracked one and an ignored one, in a folder within."""
    folder = fill(tmp_path / "top", "outside.py", "job/train.py", "job/pkg/model.py", "job/gone.py", ".gitignore")
    (folder / ".gitignore").write_text("*.bin\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=one")
    fill(folder, "job/new.py", "job/data.bin", "job/.trainmaster/digits/x", "job/__pycache__/x.pyc")
    (folder / "job" / "gone.py").unlink()
    return folder / "job"


def names_in(made: bundling.Bundle) -> list[str]:
    return sorted(entry.path for entry in bundle.read(made.packed, made.sha256))


def test_of_a_repository_git_says_what_belongs_to_it(repository: Path) -> None:
    made = bundling.of_folder(repository)
    assert names_in(made) == ["new.py", "pkg/model.py", "train.py"]
    assert made.files == 3
    assert made.commit == git(repository, "rev-parse", "HEAD")
    assert made.dirty


def test_a_folder_as_it_was_committed_is_not_dirty(repository: Path) -> None:
    git(repository, "add", "new.py", "gone.py")
    git(repository, "commit", "--quiet", "--message=two")
    fill(repository.parent, "outside.py.orig")
    (repository / "__pycache__" / "x.pyc").unlink()
    (repository / ".trainmaster" / "digits" / "x").unlink()
    assert not bundling.of_folder(repository).dirty


def test_a_submodule_is_sent_with_what_it_has(repository: Path) -> None:
    inner = fill(repository / "lib", "lib.py", "x.log")
    (inner / ".gitignore").write_text("*.log\n")
    git(inner, "init", "--quiet")
    git(inner, "add", "--all")
    git(inner, "commit", "--quiet", "--message=lib")
    assert "lib/lib.py" in names_in(bundling.of_folder(repository))
    git(repository, "add", "lib")
    found = names_in(bundling.of_folder(repository))
    assert [name for name in found if name.startswith("lib/")] == ["lib/.gitignore", "lib/lib.py"]


def test_without_git_all_but_dot_folders_and_caches(tmp_path: Path) -> None:
    files = ("train.py", "pkg/näh.py", ".hidden", ".venv/lib.py", "pkg/__pycache__/m.pyc", ".trainmaster/run/x")
    folder = fill(tmp_path / "job", *files)
    (folder / "link").symlink_to("pkg")
    made = bundling.of_folder(folder)
    assert names_in(made) == [".hidden", "link", "pkg/näh.py", "train.py"]
    assert (made.commit, made.dirty) == (None, False)


def test_the_same_files_elsewhere_and_later_are_the_same_bundle(tmp_path: Path) -> None:
    made = []
    for number, mask in enumerate((0o022, 0o077)):
        before = os.umask(mask)
        try:
            folder = fill(tmp_path / str(number), *(["b.py", "a.py"] if number else ["a.py", "b.py"]))
        finally:
            os.umask(before)
        (folder / "a.py").chmod(0o755 if number else 0o711)
        os.utime(folder / "b.py", (number, number))
        made.append(bundling.of_folder(folder))
    assert made[0].sha256 == made[1].sha256
    (tmp_path / "1" / "a.py").chmod(0o644)
    assert bundling.of_folder(tmp_path / "1").sha256 != made[0].sha256, "whether it can be run is part of it"


def test_what_is_too_large_names_the_five_largest_files_and_other_ways(tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", "train.py")
    for number in range(7):
        (folder / f"data{number}").write_bytes(random.Random(number).randbytes((number + 1) << 19))  # noqa: S311
    with pytest.raises(BundleError) as refused:
        bundling.of_folder(folder)
    lines = str(refused.value).split("\n")
    assert "8 MiB is the most that a job can carry" in lines[0]
    assert [line.split()[-1] for line in lines[1:6]] == [f"data{number}" for number in (6, 5, 4, 3, 2)]
    assert all(way in lines[-1] for way in (".gitignore", "claim", "object store", "--no-code"))


def test_a_folder_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = fill(tmp_path / "job", "train.py")
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BundleError, match="huge"):
        bundling.of_folder(folder)


def test_just_eight_mebibytes_are_taken(tmp_path: Path) -> None:
    folder = fill(tmp_path / "job")
    folder.mkdir()
    (folder / "data").write_bytes(random.Random(1).randbytes(bundle.MOST_BYTES - 8000))  # noqa: S311
    assert bundle.MOST_BYTES - 8000 < len(bundling.of_folder(folder).packed) <= bundle.MOST_BYTES


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that everybody may come to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize(("in_git", "cure"), [(True, "leave it out by .gitignore"), (False, "move it out")])
def test_a_folder_that_cannot_be_read_is_named_and_not_left_out(
    readable: Path, in_git: bool, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(readable / "a", "train.py", "locked/lost.py")
    if in_git:
        git(folder, "init", "--quiet")
    (folder / "locked").chmod(0)
    monkeypatch.setenv("HOME", str(folder))
    root = not os.geteuid()
    if root:  # who may read everything
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, -1)
        os.seteuid(65534)
    try:
        with pytest.raises(BundleError, match=f"a/locked: permission denied; make it readable, or {cure}"):
            bundling.of_folder(folder)
    finally:
        if root:
            os.seteuid(0)
        (folder / "locked").chmod(0o755)


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    def refusal(folder: Path) -> str:
        with pytest.raises(BundleError) as refused:
            bundling.of_folder(folder)
        return str(refused.value)

    folder = fill(tmp_path / "a", "train.py")
    (folder / "train.py").chmod(0o4755)
    assert "setuid" in refusal(folder)
    folder = fill(tmp_path / "b", "train.py")
    os.mkfifo(folder / "pipe")
    assert "pipe: is neither a file nor a link" in refusal(folder)
    folder = fill(tmp_path / "c", "train.py")
    (folder / "out").symlink_to("/etc/passwd")
    assert "the link out leads out of the folder" in refusal(folder)
    (tmp_path / "d").mkdir()
    assert "it has no files" in refusal(tmp_path / "d")
    assert "there is no such folder" in refusal(tmp_path / "e")
    folder = fill(tmp_path / "f", "x.bin", ".gitignore")
    (folder / ".gitignore").write_text("*\n")
    git(folder, "init", "--quiet")
    assert "git ignores all that is in it" in refusal(folder)
