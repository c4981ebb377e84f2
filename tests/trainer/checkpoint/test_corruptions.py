"""Thousands of random corruptions of checkpoints: each found, none loaded, the last good one taken each time."""

import collections
import logging
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster_trainer.checkpoint.load import newest, read
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError

from tests.trainer.checkpoint.test_checkpoint_faults import SHAPES
from tests.trainer.corruptions import HARMS, corrupted, load, store
from tests.trainer.ranks import Forker, make_job

LOOKED_AT = 50  # of each so many, the fall-back to the one before is taken too


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Not on a disk: each corruption rewrites a file, and a journal would take minutes over them."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("many", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_corruptions_are_all_found(
    forker: Forker, in_memory: Path, caplog: pytest.LogCaptureFixture, many: int
) -> None:
    folder = in_memory / "checkpoints"
    shutil.copytree(make_job(forker, in_memory / "job", task="small_tasks:LineWithAdam").run(2).checkpoints(), folder)
    last = folder / "step-00000006"
    good, older = load(last), load(folder / "step-00000004")
    chance = random.Random(2)  # noqa: S311 (no secret)
    counts: collections.Counter[str] = collections.Counter()
    loaded = []
    caplog.set_level(logging.ERROR)
    for number in range(many):
        name, files = corrupted(good, older, chance)
        store(files, good, last)
        try:
            read(folder, 6, SHAPES)
            loaded.append((number, name))
        except CorruptCheckpointError as error:
            counts[name] += str(last) in str(error)
        if number % LOOKED_AT == 0:
            fallen_back = newest(folder, SHAPES)
            assert fallen_back is not None
            assert fallen_back.manifest.step == 4
        store(good, files, last)
    assert loaded == []
    assert counts.total() == many
    assert counts.keys() == {harm.__name__ for harm in HARMS}
    assert read(folder, 6, SHAPES).manifest.step == 6
