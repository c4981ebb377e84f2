"""One rank's part of a checkpoint: a safetensors file, and the record by which it is checked.

Written here, byte by byte, because the hash is taken on the way and no second copy of the tensors is made; the
format is https://github.com/huggingface/safetensors#format. Read with the safetensors library, after its length and
hash were found right, so that its parser never sees foreign bytes.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from trainmaster_trainer.checkpoint.bulk import Arrival, there_already, write_parts
from trainmaster_trainer.checkpoint.layout import open_regular
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError, telling
from trainmaster_trainer.checkpoint.state import dtype_name

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
}
HEADER = ""  # its name among the parts of a file
HEADER_LENGTH = 8  # bytes of the number before the header
_THREADS = min(4, os.cpu_count() or 1)
_WORTH_THREADS = 1 << 20  # bytes
_AT_ONCE = 1 << 20  # bytes
MAX_HEADER = 100_000_000  # the library's own limit


@dataclass(frozen=True)
class TensorRecord:
    """What the manifest says of one tensor, or of the piece of it that one shard holds.

    `offset` is where the piece begins in each dimension; a whole tensor begins at zero. `sha256` is of its bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    sha256: str = ""


@dataclass(frozen=True)
class ShardRecord:
    """What the manifest says of one file. `sha256` is of its header and of the hashes of its tensors, in their order.

    So every byte is hashed once, and several threads can share the work.
    """

    file: str
    length: int
    sha256: str
    tensors: dict[str, TensorRecord]


def in_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names as their tensors lie in the file.

    Wide elements first keeps every tensor aligned; the names make the file a pure function of its content.
    """
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def write_shard(
    path: Path, tensors: Mapping[str, Tensor], arrival: Arrival = there_already, image: memoryview | None = None
) -> ShardRecord:
    """Write CPU tensors and bring them to the disk.

    Their content may still be on its way: `arrival(name)` returns when it is there. `image`: memory that looks like the
    file already (`image.py`), if there is such.
    """
    names = in_order(tensors)
    header = header_of({name: tensors[name] for name in names})
    parts = {HEADER: memoryview(header), **{name: memory(tensors[name]) for name in names}}
    length = sum(map(len, parts.values()))

    def digest(name: str) -> str:
        arrival(name)
        return _sha256(parts[name])

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with ThreadPoolExecutor(_THREADS) as threads:  # hashing and writing both let go of the interpreter's lock
            digests = threads.map(digest, names)
            write_parts(descriptor, parts, length, arrival, image)
            os.fsync(descriptor)
            known = dict(zip(names, digests, strict=True))
    finally:
        os.close(descriptor)
    records = {name: record_of(tensors[name], known[name]) for name in names}
    return ShardRecord(path.name, length, _whole(header, [known[name] for name in names]), records)


def record_of(tensor: Tensor, digest: str) -> TensorRecord:
    """The record of a whole tensor."""
    return TensorRecord(dtype_name(tensor.dtype), tuple(tensor.shape), (0,) * tensor.dim(), digest)


def _sha256(data: memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _whole(header: bytes, digests: Iterable[str]) -> str:
    return hashlib.sha256(b"".join((header, *(digest.encode() for digest in digests)))).hexdigest()


def memory(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, not copied."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # arrays are buffers


def header_of(tensors: Mapping[str, Tensor]) -> bytes:
    """What a file of these tensors begins with, in the order in which they lie there."""
    entries: dict[str, Any] = {}
    position = 0
    for name, tensor in tensors.items():
        end = position + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % HEADER_LENGTH)  # keeps the tensors aligned
    return len(text).to_bytes(HEADER_LENGTH, "little") + text


def read_shard(folder: Path, record: ShardRecord) -> dict[str, Tensor]:
    """All tensors of a shard, if every byte and every shape is as recorded.

    Raises:
        CorruptCheckpointError: says what is not.
        OSError: the file cannot be read now.
        MemoryError: there is no room for it.
    """
    path = folder / record.file
    with telling(path, "opened"):
        with open_regular(path) as descriptor:
            _verify_bytes(descriptor, record)
        tensors = _parse(path)
    _verify_tensors(record, tensors)
    return tensors


def _parse(path: Path) -> dict[str, Tensor]:
    """The library's words for weather are odd: they are brought into the form of all others."""
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        with open_regular(path):  # it says so of every file that it cannot open: this one says why
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    except (OSError, MemoryError):
        raise
    except RuntimeError as error:
        if number := re.search(r" \((\d+)\)$", str(error)):  # torch's: "... Too many open files (24)"
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        raise CorruptCheckpointError(f"{path.name} is not a safetensors file: {error}") from None
    except Exception as error:  # noqa: BLE001 (the library has a few kinds, and any of them means this)
        raise CorruptCheckpointError(f"{path.name} is not a safetensors file: {error}") from None


def _verify_bytes(descriptor: int, record: ShardRecord) -> None:
    length = os.fstat(descriptor).st_size
    if length != record.length:
        raise CorruptCheckpointError(f"{record.file} has {length} bytes instead of {record.length}")
    if length < HEADER_LENGTH:
        raise CorruptCheckpointError(f"{record.file} is too short for a safetensors file")
    header = int.from_bytes(os.pread(descriptor, HEADER_LENGTH, 0), "little")
    if header > min(MAX_HEADER, length - HEADER_LENGTH):
        raise CorruptCheckpointError(f"{record.file} claims a header of {header} bytes")
    start = HEADER_LENGTH + header
    # The names' order in the file is known, so nothing of it has to be parsed before it is trusted.
    items = sorted(record.tensors.items(), key=lambda item: (-_item_size(item[1]), item[0]))
    ends = list(itertools.accumulate((_size(tensor) for _, tensor in items), initial=start))
    if ends[-1] != length:
        raise CorruptCheckpointError(f"{record.file} does not have the bytes of the tensors that the manifest names")
    found = _hashes(descriptor, ends)
    for (name, tensor), digest in zip(items, found, strict=True):
        if digest != tensor.sha256:
            raise CorruptCheckpointError(
                f"{record.file} does not have the SHA-256 of the manifest: the content of {name} has changed"
            )
    if _whole(os.pread(descriptor, start, 0), found) != record.sha256:
        raise CorruptCheckpointError(f"{record.file} does not have the SHA-256 of the manifest: its header has changed")


def _hashes(descriptor: int, ends: list[int]) -> list[str]:
    """Of the bytes between each two ends."""
    pairs = list(itertools.pairwise(ends))
    if ends[-1] < _WORTH_THREADS:
        return [_hash(descriptor, *pair) for pair in pairs]
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(lambda pair: _hash(descriptor, *pair), pairs))


def _hash(descriptor: int, first: int, end: int) -> str:
    """Read and not mapped: where a disk fails, a mapped page kills the process, and would again at each restart."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_AT_ONCE, end - first)))
    while first < end:
        count = os.preadv(descriptor, [buffer[: end - first]], first)
        if not count:
            break  # it has become shorter: no hash of this is right
        digest.update(buffer[:count])
        first += count
    return digest.hexdigest()


def _size(tensor: TensorRecord) -> int:
    return math.prod(tensor.shape) * _item_size(tensor)


def _item_size(tensor: TensorRecord) -> int:
    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CorruptCheckpointError(f"{tensor.dtype!r} is no dtype")
    return dtype.itemsize


def _verify_tensors(record: ShardRecord, tensors: Mapping[str, Tensor]) -> None:
    if tensors.keys() != record.tensors.keys():
        odd = min(tensors.keys() ^ record.tensors.keys())
        raise CorruptCheckpointError(f"{record.file} and the manifest differ in having the tensor {odd}")
    for name, expected in record.tensors.items():
        found = (dtype_name(tensors[name].dtype), tuple(tensors[name].shape))
        if found != (expected.dtype, expected.shape):
            raise CorruptCheckpointError(
                f"{record.file} holds {name} as {found}, not {(expected.dtype, expected.shape)}"
            )
