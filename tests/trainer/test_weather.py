"""What only cannot be read now is no bad checkpoint: nothing older is gone on from, and no step is lost."""

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.load import newest, newest_step, read
from trainmaster_trainer.checkpoint.manifest import read_manifest
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.shard import read_shard

from tests.trainer.ranks import Forker, make_job
from tests.trainer.test_checkpoint_faults import SHAPES

NEWEST = "step-00000006"


@pytest.fixture(scope="module")
def saved(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 2, 4 and 6, written by two ranks."""
    return make_job(forker, tmp_path_factory.mktemp("saved")).run(2).checkpoints()


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "checkpoints")


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """The process may open so many files more, and no further one."""
    taken: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 (names are what is asked for)
    while not taken or taken[-1] < highest:
        taken.append(os.dup(0))  # the holes below
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


class Storm:
    """Calls that concern the newest checkpoint's files fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, suffix: str, number: int) -> None:
        self._suffix, self._number, self._open = suffix, number, os.open
        monkeypatch.setattr(os, "open", self._opened)

    def _opened(self, path: Any, *arguments: Any, **keywords: Any) -> int:
        if NEWEST in str(path) and str(path).endswith(self._suffix):
            raise OSError(self._number, os.strerror(self._number), str(path))
        return self._open(path, *arguments, **keywords)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EACCES])
def test_a_newest_one_that_cannot_be_read_now_is_not_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        Storm(patch, suffix, number)
        with pytest.raises(OSError, match=f"{os.strerror(number)}.*{NEWEST}.*{suffix}") as caught:
            newest(folder, SHAPES)
        assert caught.value.errno == number
        if suffix == ".json":
            with pytest.raises(OSError, match=NEWEST):
                newest_step(folder)
    loaded = newest(folder, SHAPES)
    assert loaded is not None
    assert loaded.manifest.step == 6


def test_what_the_disk_has_lost_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Storm(monkeypatch, ".safetensors", errno.EIO)
    loaded = newest(folder, SHAPES)
    assert loaded is not None
    assert loaded.manifest.step == 4


@pytest.mark.parametrize("left", [0, 1])
def test_no_descriptor_left_is_said_as_such(folder: Path, left: int) -> None:
    """Also where the library opens the file: it says of each that it is not there."""
    path = folder / NEWEST
    shard = read_manifest(path, 6).shards[0]
    with descriptors_left(left), pytest.raises(OSError, match="Too many open files") as caught:
        read_shard(path, shard)
    assert caught.value.errno == errno.EMFILE
    with descriptors_left(left), pytest.raises(OSError, match="Too many open files"):
        newest_step(folder)
    assert read(folder, 6).manifest.step == 6


def test_a_shard_that_shrinks_while_it_is_read_is_bad(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mapped page of it, whose loss would kill the process."""
    preadv = os.preadv

    def shrinking(descriptor: int, *arguments: Any) -> int:
        os.truncate(f"/proc/self/fd/{descriptor}", 100)
        return preadv(descriptor, *arguments)

    monkeypatch.setattr(os, "preadv", shrinking)
    with pytest.raises(CorruptCheckpointError, match="does not have the SHA-256"):
        read(folder, 6)


def test_a_folder_that_is_not_there_has_no_steps_and_one_that_cannot_be_listed_says_so(tmp_path: Path) -> None:
    assert layout.saved_steps(tmp_path / "nowhere") == []
    with descriptors_left(0), pytest.raises(OSError, match="Too many open files"):
        layout.saved_steps(tmp_path)
