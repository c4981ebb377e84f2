"""Read and write the manifest: the JSON that makes shards a checkpoint. Written last; what is not in it does not exist.

It carries its own SHA-256 (`digest`, of the file as it is while that is empty), so a changed manifest is found like a
changed shard. The trainer writes it; the trainer, the agent and `trainmaster audit` read it, by the one reader here. A
program that can write to the storage can make one with a good digest, so each number is bounded before anything is made
of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from trainmaster.wire import bounded_json, codec, tiling
from trainmaster.wire.files import read_bounded
from trainmaster.wire.read_errors import CorruptCheckpointError, telling

STEP_FOLDER = re.compile(r"step-([0-9]{8,15})")
MOST_ENTRIES = 200_000  # of the folder of these: at most 1000 checkpoints are kept
MANIFEST = "manifest.json"
MODEL = "model/"
STREAM = "stream"  # of `scalars`, where the samples are a stream: where it stood
SCRIPT = "session"  # of `scalars`, where a script has saved them (session.state)
FORMAT = 6
MAX_MANIFEST = 1 << 25  # bytes: 130,000 tensors, of model and optimizer together
MOST_SHARDS = 1 << 16
MOST_TENSORS = 200_000  # with an object of JSON for each
MOST_VALUES = 1_500_000  # numbers and texts of JSON
MOST_DIMENSIONS = 64
_MOST_BYTES = 1 << 50  # of a file, or elements of a tensor
MOST_RANKS = 1 << 20
_MOST_NAME = 1000  # letters
_SHARD_FILE = re.compile(r"shard-[0-9]{5}-of-[0-9]{5}\.[0-9a-f]{8}\.safetensors")
_HASH = re.compile(r"[0-9a-f]{64}")
_DIGEST = b'\n "digest": "'  # stands once before the hash: what lies deeper begins with more blanks

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
    "uint8", "bool", "float8_e4m3fn", "float8_e5m2", "complex64",
)  # fmt: skip

Shapes = Dict[str, Tuple[str, Tuple[int, ...]]]  # name -> dtype, shape


def step_folder(folder: Path, step: int) -> Path:
    """Return the final name of the checkpoint of a step."""
    return folder / f"step-{step:08d}"


@dataclass(frozen=True)
class TensorRecord:
    """Hold what the manifest says of one tensor, or of the piece of it that one shard holds.

    `offset` is where the piece begins in each dimension; a whole tensor begins at zero. `sha256` is of its bytes.
    """

    dtype: str
    shape: Tuple[int, ...]
    offset: Tuple[int, ...]
    sha256: str = ""


@dataclass(frozen=True)
class ShardRecord:
    """Hold what the manifest says of one file. `sha256` is of its header and its tensors' hashes, in their order.

    So every byte is hashed once, and several threads can share the work.
    """

    file: str
    length: int
    sha256: str
    tensors: Dict[str, TensorRecord]


@dataclass(frozen=True)
class Cursor:
    """Hold the position in the sequence of samples: `data.py` needs no more than this to go on."""

    step: int
    samples: int  # consumed since the first step
    global_batch_size: int
    seed: int
    dataset: int = 0  # number of its samples; 0: not known when it was saved


@dataclass(frozen=True)
class Manifest:
    """Hold everything about a checkpoint except the tensors' bytes."""

    step: int
    attempt: int
    world_size: int
    strategy: str
    cursor: Cursor
    time: float  # seconds since the epoch, when it was complete
    model_sha256: str
    shards: Tuple[ShardRecord, ...]
    scalars: Dict[str, Any] = field(default_factory=dict)
    job: str = ""
    seconds: Optional[float] = None  # from the step's end until it was complete
    format: int = FORMAT
    digest: str = ""

    def encode(self) -> bytes:
        """Return the file's content, with its digest.

        Raises:
            ValueError: it is larger than what is read again.
        """
        text = json.dumps({**codec.to_plain(self), "digest": ""}, sort_keys=True, indent=1).encode()
        signed = text.replace(_DIGEST, _DIGEST + hashlib.sha256(text).hexdigest().encode())
        if len(signed) > MAX_MANIFEST:
            raise ValueError(f"the manifest has {len(signed)} bytes, for so many tensors; {MAX_MANIFEST} can be read")
        return signed

    def shapes(self, prefix: str = "") -> Shapes:
        """Return dtype and whole shape of each tensor whose name begins so."""
        return {
            name: (pieces[0].dtype, tiling.whole_of([(piece.offset, piece.shape) for piece in pieces]))
            for name, pieces in self.pieces().items()
            if name.startswith(prefix)
        }

    def pieces(self) -> Dict[str, List[TensorRecord]]:
        """Return the records of every tensor, over all shards."""
        found: Dict[str, List[TensorRecord]] = {}
        for shard in self.shards:
            for name, record in shard.tensors.items():
                found.setdefault(name, []).append(record)
        return found


def model_sha256(shards: Iterable[ShardRecord]) -> str:
    """Return one hash for the full model: name, dtype, shape and the hash of its bytes, in the order of names.

    It says nothing of ranks or shards, so equal weights have equal hashes at any world size.
    """
    tensors = {name: record for shard in shards for name, record in shard.tensors.items() if name.startswith(MODEL)}
    digest = hashlib.sha256()
    for name, record in sorted(tensors.items()):
        digest.update(f"{name} {record.dtype} {list(record.shape)} {record.sha256}\n".encode())
    return digest.hexdigest()


def read_manifest(folder: Path, step: int) -> Manifest:
    """Return the manifest in a checkpoint's folder, if it is whole and all its values are possible.

    Raises:
        CorruptCheckpointError: says what is wrong.
        OSError: it cannot be read now.
    """
    with _opened(folder) as plain:
        shards = tuple(_shard(one) for one in plain.pop("shards"))
        manifest = codec.from_plain(Manifest, {**plain, "shards": []})
    _verify(dataclasses.replace(manifest, shards=shards), step)
    return dataclasses.replace(manifest, shards=shards)


@dataclass(frozen=True)
class Glance:
    """Hold where a checkpoint comes from."""

    attempt: int
    step: int
    time: float
    model_sha256: str
    job: str = ""
    seconds: Optional[float] = None


def glance(folder: Path, step: int) -> Optional[Glance]:
    """Return where the checkpoint of that step comes from; None if its manifest is missing or changed.

    This costs a third of reading the manifest.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        with _opened(folder) as plain:
            names = {"job", "attempt", "step", "time", "model_sha256", "seconds"}
            seen = codec.from_plain(Glance, {name: plain[name] for name in names & plain.keys()})
    except CorruptCheckpointError:
        return None
    return seen if seen.step == step else None


@contextmanager
def _opened(folder: Path) -> Iterator[Dict[str, Any]]:
    """Yield the parsed content, if the text has the digest that it names. What is done with it may find it bad.

    Raises:
        CorruptCheckpointError: it is no manifest.
        OSError: it cannot be read now.
    """
    path = folder / MANIFEST
    with telling(folder, "opened"):
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise CorruptCheckpointError(f"{folder.name} is not a folder")
    with telling(path, "read"):
        text = read_bounded(path, MAX_MANIFEST)
    try:
        plain: Dict[str, Any] = bounded_json.parse(text, MOST_VALUES, MOST_TENSORS)
        if plain["format"] != FORMAT:
            raise CorruptCheckpointError(f"{MANIFEST} has format {plain['format']!r:.40}; this version reads {FORMAT}")
        before, _, after = text.partition(_DIGEST)
        named, after = after[:64], after[64:]
        if hashlib.sha256(before + _DIGEST + after).hexdigest().encode() != named:
            raise CorruptCheckpointError(f"{MANIFEST} does not have the SHA-256 that it names: its content has changed")
        yield plain
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(f"{MANIFEST} is not a manifest: {error}") from None


def _shard(plain: Dict[str, Any]) -> ShardRecord:
    """Return a record, decoded by hand: a general decoder takes longer than all else of a restart."""
    file, length, digest = plain["file"], plain["length"], plain["sha256"]
    _require(
        type(file) is str and bool(_SHARD_FILE.fullmatch(file)), f"the shard {file!r:.80}, which is no name of a shard"
    )
    _require(type(length) is int and 0 <= length <= _MOST_BYTES, f"{file} with a length of {length!r:.40}")
    _require(type(digest) is str and bool(_HASH.fullmatch(digest)), f"{file} with a SHA-256 of {digest!r:.80}")
    tensors = {}
    for name, one in plain["tensors"].items():
        dtype, own = one["dtype"], one["sha256"]
        # A tensor without dimensions has neither: empty members are left out.
        shape, offset = tuple(one.get("shape", ())), tuple(one.get("offset", ()))
        is_hash = type(own) is str and bool(_HASH.fullmatch(own))
        _require(len(name) <= _MOST_NAME and is_hash, f"{name!r:.80} with a record of {one!r:.80}")
        is_dtype = type(dtype) is str and dtype in DTYPES
        _require(is_dtype, f"{name!r:.80} with {dtype!r:.40}, which is no dtype of a checkpoint")
        cannot = f"{name!r:.80}, which has a piece that cannot be: {shape!r:.80} at {offset!r:.80}"
        _require(len(shape) == len(offset) <= MOST_DIMENSIONS, cannot)
        elements = 1
        for begin, extent in zip(offset, shape):
            _require(all(type(number) is int and 0 <= number <= _MOST_BYTES for number in (begin, extent)), cannot)
            elements *= max(1, begin + extent)
            _require(elements <= _MOST_BYTES, cannot)
        tensors[name] = TensorRecord(dtype, shape, offset, own)
    return ShardRecord(file, length, digest, tensors)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CorruptCheckpointError(f"{MANIFEST} names {otherwise}")


def _verify(manifest: Manifest, step: int) -> None:
    if manifest.step != step or manifest.cursor.step != step:
        raise CorruptCheckpointError(f"{MANIFEST} is of step {manifest.step} in the folder of step {step}")
    files = [shard.file for shard in manifest.shards]
    _require(len(files) <= MOST_SHARDS, f"{len(files)} shards")
    _require(len(set(files)) == len(files), "a shard twice")
    _require(0 < manifest.world_size <= MOST_RANKS, f"{manifest.world_size} ranks")
    numbers = dataclasses.astuple(manifest.cursor)
    _require(min(*numbers, manifest.attempt) >= 0, f"a number that cannot be: {numbers} of attempt {manifest.attempt}")
    _require(max(len(manifest.strategy), len(manifest.job)) <= _MOST_NAME, "a strategy or a job of a long name")
    for name, pieces in manifest.pieces().items():
        which = f"{MANIFEST}: the pieces of {name!r:.80}"
        if len({len(piece.shape) for piece in pieces}) > 1:
            raise CorruptCheckpointError(f"{which} have different numbers of dimensions")
        if len({piece.dtype for piece in pieces}) > 1:
            raise CorruptCheckpointError(f"{which} have different dtypes")
        boxes = [(piece.offset, piece.shape) for piece in pieces]
        if not tiling.make_one(boxes):
            raise CorruptCheckpointError(f"{which} do not make one tensor of shape {list(tiling.whole_of(boxes))}")
    # Else a checkpoint that has lost a tensor would look like one of another model, and no older one would be tried.
    _require(manifest.model_sha256 == model_sha256(manifest.shards), "a SHA-256 of the model that its tensors lack")
