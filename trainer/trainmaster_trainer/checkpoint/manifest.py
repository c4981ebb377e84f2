"""The manifest: the JSON that makes shards a checkpoint. Written last; what is not in it does not exist.

It carries its own SHA-256 (`digest`), so that a changed manifest is found like a changed shard. The operator's side
reads `step`, `time` and `model_sha256` from it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainmaster.wire import codec
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.checkpoint.layout import MANIFEST, open_regular
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError, telling
from trainmaster_trainer.checkpoint.shard import ShardRecord, TensorRecord
from trainmaster_trainer.checkpoint.state import MODEL, Shapes
from trainmaster_trainer.errors import ConfigurationError

FORMAT = 4
MAX_MANIFEST = 1 << 30  # bytes: four million pieces of tensors, and no bomb
_SHARD_FILE = re.compile(r"shard-\d{5}-of-\d{5}\.safetensors")


@dataclass(frozen=True)
class Cursor:
    """Where the sequence of samples stands: `data.py` needs no more than this to go on."""

    step: int
    samples: int  # consumed since the first step
    global_batch_size: int
    seed: int
    dataset: int = 0  # its samples; 0: who saved does not know


@dataclass(frozen=True)
class Manifest:
    """Everything about a checkpoint but the tensors' bytes."""

    step: int
    attempt: int
    world_size: int
    strategy: str
    cursor: Cursor
    time: float  # seconds since the epoch, when it was complete
    model_sha256: str
    shards: tuple[ShardRecord, ...]
    scalars: dict[str, Any] = field(default_factory=dict)
    job: str = ""
    seconds: float | None = None  # from the step's end until it was complete
    format: int = FORMAT
    digest: str = ""

    def encode(self) -> bytes:
        """The file's content, with its digest."""
        plain = codec.to_plain(replace(self, digest=""))
        plain["digest"] = _digest(plain)
        return json.dumps(plain, sort_keys=True, indent=1).encode()

    def model_shapes(self) -> Shapes:
        """Dtype and whole shape of each tensor of the model."""
        return {name: whole(pieces) for name, pieces in self.pieces().items() if name.startswith(MODEL)}

    def pieces(self) -> dict[str, list[TensorRecord]]:
        """The records of every tensor, over all shards."""
        found: dict[str, list[TensorRecord]] = {}
        for shard in self.shards:
            for name, record in shard.tensors.items():
                found.setdefault(name, []).append(record)
        return found


def whole(pieces: Iterable[TensorRecord]) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape of the tensor that these pieces make."""
    records = list(pieces)
    ends = zip(*(tuple(o + s for o, s in zip(r.offset, r.shape, strict=True)) for r in records), strict=True)
    return records[0].dtype, tuple(max(end) for end in ends)


def check_same_order(cursor: Cursor, plan: TrainingPlan, dataset: int) -> None:
    """Refuse to go on where samples would be left out or come twice: a step's samples follow from these three.

    Raises:
        ConfigurationError: names the field that has changed.
    """
    check_same_dataset(cursor.step, cursor.dataset, dataset)
    for name, then, now in (
        ("globalBatchSize", cursor.global_batch_size, plan.global_batch_size),
        ("seed", cursor.seed, plan.seed),
    ):
        if then != now:
            raise ConfigurationError(
                f"spec.training.{name}: this job's checkpoint of step {cursor.step} was reached with {then}, and with "
                f"{now} the next steps would leave samples out or repeat some. Put it back (on a laptop), or begin "
                "another job with spec.checkpoint.resumeFrom."
            )


def check_same_dataset(step: int, then: int, now: int) -> None:
    """Refuse to go on from a step that was reached with another number of samples; 0 is not known.

    Raises:
        ConfigurationError: it was.
    """
    if then and now and then != now:
        raise ConfigurationError(
            f"spec.training.task: its dataset() has {now} samples now, and step {step} of this job was reached with "
            f"{then}; the next steps would leave samples out or repeat some. Give it the same again (on a laptop), or "
            "begin another job with spec.checkpoint.resumeFrom."
        )


def check_same_everywhere(counts: Mapping[int, int]) -> None:
    """Refuse ranks (the keys) that do not have the same number of samples (the values).

    Raises:
        ConfigurationError: names two of them.
    """
    first = min(counts)
    other = next((rank for rank, count in sorted(counts.items()) if count != counts[first]), None)
    if other is not None:
        raise ConfigurationError(
            f"spec.training.task: its dataset() has {counts[first]} samples on rank {first} and {counts[other]} on "
            f"rank {other}, and each would take them in an order of its own. Give all ranks the same, as from a list "
            "of files that is made once, before the training."
        )


def model_sha256(tensors: dict[str, TensorRecord]) -> str:
    """One hash for the full model: name, dtype, shape and the hash of its bytes, in the order of names.

    It says nothing of ranks or shards, so equal weights have equal hashes at any world size.
    """
    digest = hashlib.sha256()
    for name in sorted(name for name in tensors if name.startswith(MODEL)):
        record = tensors[name]
        digest.update(f"{name} {record.dtype} {list(record.shape)} {record.sha256}\n".encode())
    return digest.hexdigest()


def read_manifest(folder: Path, step: int) -> Manifest:
    """The manifest in a checkpoint's folder, if it is whole and says nothing that cannot be.

    Raises:
        CorruptCheckpointError: says what is wrong.
        OSError: it cannot be read now.
    """
    with _its_own_error():
        text, plain = _read(folder / MANIFEST)
        manifest = codec.from_plain(Manifest, plain)
    _verify(manifest, step)
    if manifest.encode() != text:
        # 1e-08 and 1E-08 are the same number, but only one of them was written.
        raise CorruptCheckpointError(f"{MANIFEST} is not as it was written: its content has changed")
    return manifest


@dataclass(frozen=True)
class Glance:
    """Where a checkpoint comes from."""

    job: str
    attempt: int
    step: int


def glance(folder: Path, step: int) -> Glance | None:
    """If the manifest of that step is there and unchanged: a look, at a third of the cost of reading it.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        with _its_own_error():
            plain = _read(folder / MANIFEST)[1]
            seen = Glance(str(plain["job"]), int(plain["attempt"]), int(plain["step"]))
    except CorruptCheckpointError:
        return None
    return seen if seen.step == step else None


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The text, and what it says but for its digest."""
    with telling(path, "read"), open_regular(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        text = file.read(MAX_MANIFEST)
    plain: dict[str, Any] = json.loads(text)
    claimed = plain.pop("digest")
    if claimed != _digest(plain):
        raise CorruptCheckpointError(f"{MANIFEST} does not have the SHA-256 that it names: its content has changed")
    return text, plain


@contextmanager
def _its_own_error() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(f"{MANIFEST} is not a manifest: {error}") from None


def _verify(manifest: Manifest, step: int) -> None:
    if manifest.format != FORMAT:
        raise CorruptCheckpointError(f"{MANIFEST} has format {manifest.format}; this version reads {FORMAT}")
    if manifest.step != step or manifest.cursor.step != step:
        raise CorruptCheckpointError(f"{MANIFEST} is of step {manifest.step} in the folder of step {step}")
    for shard in manifest.shards:
        if not _SHARD_FILE.fullmatch(shard.file):
            raise CorruptCheckpointError(f"{MANIFEST} names the shard {shard.file!r}, which is no name of a shard")
    for name, pieces in manifest.pieces().items():
        _verify_pieces(name, pieces)


def _verify_pieces(name: str, pieces: list[TensorRecord]) -> None:
    for piece in pieces:
        if len(piece.offset) != len(piece.shape) or min((*piece.offset, *piece.shape), default=0) < 0:
            raise CorruptCheckpointError(
                f"{MANIFEST}: {name} has a piece that cannot be: {piece.shape} at {piece.offset}"
            )
    if len({len(piece.shape) for piece in pieces}) > 1:
        raise CorruptCheckpointError(f"{MANIFEST}: the pieces of {name} have different numbers of dimensions")
    dtype, shape = whole(pieces)
    if any(piece.dtype != dtype for piece in pieces):
        raise CorruptCheckpointError(f"{MANIFEST}: the pieces of {name} have different dtypes")
    # As many elements as the whole has, and none twice, are all of them.
    are_too_few = sum(math.prod(piece.shape) for piece in pieces) != math.prod(shape)
    if are_too_few or any(_overlap(*pair) for pair in itertools.combinations(pieces, 2)):
        raise CorruptCheckpointError(f"{MANIFEST}: the pieces of {name} do not make one tensor of shape {list(shape)}")


def _overlap(one: TensorRecord, other: TensorRecord) -> bool:
    boxes = zip(one.offset, one.shape, other.offset, other.shape, strict=True)
    return all(max(a, b) < min(a + m, b + n) for a, m, b, n in boxes)


def _digest(plain: dict[str, Any]) -> str:
    return hashlib.sha256(codec.encode({key: plain[key] for key in plain if key != "digest"})).hexdigest()
