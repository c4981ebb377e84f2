"""Ten thousand corruptions of a checkpoint: how many are found, ours beside torch's DCP, on the same kinds of harm.

A harm counts as loaded when the load raises nothing. (Some bytes of a file mean nothing to DCP: padding in its zip
files. They are counted apart, as "equal": what came out was right.)
"""

import collections
import io
import logging
import random
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint.load import read
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.settings import Settings

from bench import results
from tests.trainer.corruptions import corrupted, load, store
from tests.trainer.ranks import alone

OURS, THEIRS = 10_000, 300
FOUND, EQUAL, LOADED = "found", "equal", "loaded"
Look = Callable[[], dict[str, Tensor]]


def main() -> str:
    """Measure; the line for people."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        ours = _trainmaster(Path(name) / "ours")
        theirs = _torch(Path(name) / "theirs")
    results.save("corruption", {"trainmaster": ours, "dcp": theirs})
    wrong = theirs[LOADED] / sum(theirs.values())
    return f"corruption: {ours[FOUND]} of {OURS} found, {ours[LOADED]} loaded; DCP loads {wrong:.0%} of them wrong"


def _weights(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {f"model/{number}": torch.randn(64, 32, generator=generator) for number in range(4)}


def _trainmaster(folder: Path) -> dict[str, int]:
    plan = TrainingPlan("OneDevice", steps=100, global_batch_size=4, checkpoint_keep=9)
    saver = Saver(Settings(plan, folder, job_uid="bench"), alone())
    saver.prepare()
    for step in (4, 6):
        saver.save(step, State(_weights(step)), before_commit=lambda: None)
        saver.wait()
    folders = folder / "step-00000006", folder / "step-00000004"
    return _count(*folders, lambda: read(folder, 6).state.tensors, OURS, (CorruptCheckpointError,))


def _torch(folder: Path) -> dict[str, int]:
    for step in (4, 6):
        state_dict_saver.save(_weights(step), checkpoint_id=folder / str(step))

    def look() -> dict[str, Tensor]:
        found = {name: torch.zeros(64, 32) for name in _weights(6)}
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            state_dict_loader.load(found, checkpoint_id=folder / "6")
        return found

    return _count(folder / "6", folder / "4", look, THEIRS, (BaseException,))


def _count(folder: Path, other: Path, look: Look, times: int, finds: tuple[type[BaseException], ...]) -> dict[str, int]:
    good, older, right = load(folder), load(other), look()
    chance = random.Random(1)  # noqa: S311 (no secret)
    counts: collections.Counter[str] = collections.Counter({FOUND: 0, EQUAL: 0, LOADED: 0})
    for _ in range(times):
        _, files = corrupted(good, older, chance)
        store(files, good, folder)
        counts[_outcome(look, right, finds)] += 1
        store(good, files, folder)
    return dict(counts)


def _outcome(look: Look, right: dict[str, Tensor], finds: tuple[type[BaseException], ...]) -> str:
    try:
        found = look()
    except finds:
        return FOUND
    return EQUAL if all(torch.equal(found[name], right[name]) for name in right) else LOADED
