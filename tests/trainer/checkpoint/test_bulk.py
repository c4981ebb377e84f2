"""Large files past the page cache: every byte arrives, whatever the sizes; a full disk is an error and no hang."""

import errno
import itertools
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster_trainer.checkpoint import bulk
from trainmaster_trainer.checkpoint.bulk import BLOCK, WORTH, write_parts

CONTENT = random.Random(3).randbytes(WORTH + 2 * BLOCK)  # noqa: S311 (no secret)


def write(path: Path, lengths: list[int]) -> bytes:
    """Write parts of these lengths; all of what should be there."""
    ends = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    parts = {str(first_end): memoryview(CONTENT)[slice(*first_end)] for first_end in itertools.pairwise(ends)}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_parts(descriptor, parts, ends[-1])
    finally:
        os.close(descriptor)
    return CONTENT[: ends[-1]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 24 MiB (needs root, as the cluster tests do): the kind of disk that O_DIRECT is for."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    image.touch()
    os.truncate(image, 24 << 20)
    disk.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(
    "lengths",
    [
        [17, 4000, 0, 1],
        [WORTH],
        [WORTH - 1, 1],
        [100, WORTH, 8],
        [BLOCK, BLOCK, BLOCK],
        [BLOCK - 1, BLOCK + 1, 4095, 1],
        [WORTH + BLOCK + 5],
    ],
)
def test_every_byte_arrives(tmp_path: Path, lengths: list[int]) -> None:
    expected = write(tmp_path / "file", lengths)
    assert (tmp_path / "file").read_bytes() == expected


def test_also_where_the_file_system_has_no_way_past_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_SECTOR", 1)  # so that the odd end is tried too, and refused by the disk
    expected = write(tmp_path / "odd", [WORTH, 77])
    assert (tmp_path / "odd").read_bytes() == expected
    in_memory = Path("/dev/shm") / f"trainmaster-test-{os.getpid()}"  # noqa: S108 (its own name)
    try:
        expected = write(in_memory, [WORTH, 77])
        assert in_memory.read_bytes() == expected
    finally:
        in_memory.unlink(missing_ok=True)


def test_a_full_disk_is_an_error(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write(small_disk / "file", [WORTH + 2 * BLOCK])
    assert caught.value.errno == errno.ENOSPC
    (small_disk / "file").unlink()
    expected = write(small_disk / "less", [WORTH])
    assert (small_disk / "less").read_bytes() == expected
