"""Files in folders of others: no link is followed, no pipe waited for, no more read than asked for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from trainmaster.wire.files import (
    delete_folder,
    make_folder,
    open_to_read,
    open_to_write,
    read_bounded,
    replace,
    why_foreign,
)

VICTIM = b"precious"


def a_link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


def a_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def another_name(path: Path) -> None:
    path.hardlink_to(path.parent / "victim")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


FOREIGN: list[Callable[[Path], None]] = [a_link, a_dangling_link, another_name, a_pipe, Path.mkdir]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "victim").write_bytes(VICTIM)
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize("make", FOREIGN)
def test_what_is_not_ours_is_not_written_to(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with pytest.raises(OSError, match=r"\[Errno"):
        open_to_write(path)
    assert why_foreign(path)
    assert (path.parent / "victim").read_bytes() == VICTIM
    assert not (path.parent / "nowhere").exists()


@pytest.mark.parametrize("make", [a_link, a_dangling_link, another_name])
def test_a_file_that_is_replaced_leaves_what_its_name_pointed_at(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    replace(path, b"new")
    assert (path.read_bytes(), path.is_symlink()) == (b"new", False)
    assert (path.parent / "victim").read_bytes() == VICTIM
    assert not (path.parent / "nowhere").exists()


@pytest.mark.parametrize("make", [a_link, a_dangling_link, a_pipe, Path.mkdir])
def test_what_is_no_regular_file_is_not_read(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with pytest.raises(OSError, match=r"\[Errno"):
        open_to_read(path)


def test_no_device_is_read_to_its_end() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_bounded(Path("/dev/zero"), 10)


def test_no_more_is_read_than_asked_for(path: Path) -> None:
    os.truncate(path.parent / "victim", 1 << 40)  # a hole
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_bounded(path.parent / "victim", 10)


def test_what_is_ours_is_appended_to(path: Path) -> None:
    for line in (b"one\n", b"two\n"):
        with os.fdopen(open_to_write(path), "ab", 0) as file:
            file.write(line)
    assert read_bounded(path, 8) == b"one\ntwo\n"
    assert not why_foreign(path)


def test_a_link_to_a_folder_is_no_folder(tmp_path: Path) -> None:
    make_folder(tmp_path / "a")
    make_folder(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="link to a folder"):
        make_folder(tmp_path / "b")


def test_a_folder_nested_deeper_than_functions_are_called_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(VICTIM)
    (tmp_path / "top" / "empty").mkdir(parents=True)
    here = os.open(tmp_path / "top", os.O_RDONLY)
    for number in range(3000):
        os.symlink(tmp_path, f"link-{number}", dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir("deeper", dir_fd=here)
        deeper = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    delete_folder(tmp_path / "top")
    delete_folder(tmp_path / "top")  # it is gone
    assert list(tmp_path.iterdir()) == [tmp_path / "victim"]


@pytest.mark.parametrize("make", FOREIGN[:4])
def test_what_is_no_folder_is_not_deleted_as_one(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    delete_folder(path)
    assert path.lstat()
    assert (path.parent / "victim").read_bytes() == VICTIM
