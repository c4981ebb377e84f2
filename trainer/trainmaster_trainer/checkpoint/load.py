"""Read checkpoints: everything is verified, and what is bad is named and passed over for the next older one.

`newest` is for one process and one folder; `resume.py` makes the ranks agree.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from trainmaster.wire import tiling
from trainmaster.wire.manifest import MAX_MANIFEST, SCRIPT

from trainmaster_trainer.checkpoint import of_scripts
from trainmaster_trainer.checkpoint.layout import MANIFEST, saved_steps, step_folder
from trainmaster_trainer.checkpoint.lineage import Origin
from trainmaster_trainer.checkpoint.manifest_check import Manifest, glance, read_manifest
from trainmaster_trainer.checkpoint.model_state import check_readable
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.shard import TensorRecord, read_shard
from trainmaster_trainer.checkpoint.state import ANOTHER_FOLDER, MODEL, Shapes, State, first_difference
from trainmaster_trainer.errors import ConfigurationError

log = logging.getLogger(__name__)
MOST_TIMES = 64  # as much as the model: an optimizer of Adam's kind keeps four times as much of a model in BF16
ROOM_FOR_OTHERS = 1 << 26  # bytes
MOST_BAD = 64  # checkpoints that are passed over, if they have a manifest at all
MOST_GLANCED = 10_000  # the same, where only their manifests are looked at
MOST_BAD_BYTES = 1 << 26  # of their manifests
Trusted = Callable[[Origin], bool]


@dataclass(frozen=True)
class LoadedCheckpoint:
    """LoadedCheckpoint is a verified checkpoint in memory."""

    manifest: Manifest
    state: State  # of model and optimizer
    is_here: bool = True  # in this replica's folder; else another replica has sent it


def newest(
    folder: Path, expected: Shapes, below: int | None = None, trusted: Trusted | None = None
) -> LoadedCheckpoint | None:
    """Return the newest good and trusted checkpoint in a folder (older than step `below`), or None.

    Raises:
        ConfigurationError: it is good, but another model's; or too many are bad.
        OSError: a newer one cannot be read now. It may be good.
    """
    patience = _Patience(folder)
    wanted = [step for step in saved_steps(folder) if below is None or step < below]
    for number, step in enumerate(wanted):
        try:
            return read(folder, step, expected, trusted)
        except CorruptCheckpointError as bad:
            patience.pass_over(step, str(bad))
            if number < MOST_BAD:
                log.warning("Checkpoint of step %d is bad, trying the one before: %s.", step, bad)
    return None


@dataclass
class _Patience:
    """Limit how many bad checkpoints are passed over: another job's folder may have a hundred thousand, each large."""

    folder: Path
    most: int = MOST_BAD
    tried: int = 0
    bytes: int = 0

    def pass_over(self, step: int, why: str) -> None:
        """Count a bad checkpoint.

        Raises:
            ConfigurationError: there are too many.
        """
        with suppress(OSError):
            size = (step_folder(self.folder, step) / MANIFEST).lstat().st_size
            self.bytes += size if size <= MAX_MANIFEST else 0  # else it was not read
            self.tried += 1  # a folder without a manifest costs nothing
        if self.tried > self.most or self.bytes > MOST_BAD_BYTES:
            raise ConfigurationError(
                f"spec.checkpoint.storage: {self.folder} has more bad checkpoints than are looked at ({self.tried}, "
                f"the last of step {step}: {why}). Take them away."
            )


def newest_step(folder: Path, trusted: Trusted | None = None) -> int:
    """Return the newest trusted step in a folder whose manifest is whole, or 0. It does not verify shards.

    Raises:
        ConfigurationError: there are too many bad ones.
        OSError: a newer one cannot be read now.
    """
    patience = _Patience(folder, MOST_GLANCED)
    for step in saved_steps(folder):
        seen = glance(step_folder(folder, step), step)
        if seen is not None and (trusted is None or trusted(seen)):
            return step
        patience.pass_over(step, "its manifest is bad, or it is on a branch that was given up")
    return 0


def read(folder: Path, step: int, expected: Shapes | None = None, trusted: Trusted | None = None) -> LoadedCheckpoint:
    """Return one checkpoint, verified to the last byte. With `expected`, it has all that is to be restored.

    Raises:
        CorruptCheckpointError: it cannot be trusted, or is not `trusted`.
        ConfigurationError: it is another model's.
        OSError: it cannot be read now.
        MemoryError: there is no room for it.
    """
    manifest, path = look_at(folder, step, expected, trusted), step_folder(folder, step)
    pieces: dict[str, list[tuple[TensorRecord, Tensor]]] = {}
    try:
        for shard in manifest.shards:
            for name, tensor in read_shard(path, shard).items():
                pieces.setdefault(name, []).append((shard.tensors[name], tensor))
        tensors = {name: parts[0][1] for name, parts in pieces.items()}
        for name, parts in pieces.items():
            if len(parts) > 1:  # ranks have split it
                shape = tiling.whole_of([(record.offset, record.shape) for record, _ in parts])
                tensors[name] = torch.empty(shape, dtype=parts[0][1].dtype)
                for record, tensor in parts:
                    box = tuple(slice(at, at + size) for at, size in zip(record.offset, record.shape, strict=True))
                    tensors[name][box] = tensor
        loaded = LoadedCheckpoint(manifest, State(tensors, manifest.scalars))
        if expected is not None:  # the ranks must know before they agree on it
            check = of_scripts.check_readable if SCRIPT in manifest.scalars else check_readable
            check(loaded.state)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None
    return loaded


def look_at(folder: Path, step: int, expected: Shapes | None = None, trusted: Trusted | None = None) -> Manifest:
    """Return the manifest of a checkpoint whose shards may be good.

    Raises:
        CorruptCheckpointError: it cannot be trusted, or is not `trusted`.
        ConfigurationError: it is another model's.
        OSError: it cannot be read now.
    """
    path = step_folder(folder, step)
    try:
        manifest = read_manifest(path, step)
        if trusted is not None and not trusted(manifest):
            raise CorruptCheckpointError(f"attempt {manifest.attempt} came to it on a branch that was given up")
        if expected is not None:
            if difference := first_difference(manifest.shapes(MODEL), expected):
                name, saved, here = difference
                raise ConfigurationError(
                    f"spec.checkpoint: {path} holds another model. First difference: {name} is {saved} in the "
                    f"checkpoint and {here} in the task. Put spec.training.arguments back, or train in another folder "
                    f"({ANOTHER_FOLDER})."
                )
            # A file larger than model and optimizer can be is not even read: sparse files cost who makes them nothing.
            model = sum(math.prod(shape) * getattr(torch, dtype).itemsize for dtype, shape in expected.values())
            found, most = sum(shard.length for shard in manifest.shards), MOST_TIMES * model + ROOM_FOR_OTHERS
            if found > most:
                raise CorruptCheckpointError(
                    f"its shards have {found} bytes, and a model of {model} has at most {most}"
                )
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None
    return manifest
