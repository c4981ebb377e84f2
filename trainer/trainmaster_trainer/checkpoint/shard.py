"""Write and read one rank's part of a checkpoint: a safetensors file, and the record by which it is checked.

It is written here, byte by byte, because the hash is taken on the way and no second copy of the tensors is made; the
format is https://github.com/huggingface/safetensors#format. The header follows from the record, so it is compared and
never parsed; the tensors are hashed as they are read, into the very memory that the training goes on with.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trainmaster.wire.manifest import ShardRecord, TensorRecord

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

__all__ = ["ShardRecord", "TensorRecord"]


def in_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names as their tensors lie in the file.

    Wide elements first keeps every tensor aligned; the names make the file a pure function of its content.
    """
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def write_shard(
    path: Path,
    tensors: Mapping[str, Tensor],
    arrival: Arrival = there_already,
    image: memoryview | None = None,
    look: Callable[[str], None] = lambda _: None,
) -> ShardRecord:
    """Write CPU tensors and bring them to the disk.

    Their content may still be on its way: `arrival(name)` returns when it is there. `image`: memory that looks like the
    file already (`image.py`), if there is such. `look` is called with the name of each tensor that is there, by the
    thread that hashes it.
    """
    names = in_order(tensors)
    header = header_of({name: tensors[name] for name in names})
    parts = {HEADER: memoryview(header), **{name: memory(tensors[name]) for name in names}}
    length = sum(map(len, parts.values()))

    def digest(name: str) -> str:
        arrival(name)
        look(name)
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
    """Return the record of a whole tensor."""
    return TensorRecord(dtype_name(tensor.dtype), tuple(tensor.shape), (0,) * tensor.dim(), digest)


def _sha256(data: memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _whole(header: bytes, digests: Iterable[str]) -> str:
    return hashlib.sha256(b"".join((header, *(digest.encode() for digest in digests)))).hexdigest()


def memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, not copied."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # arrays are buffers


def header_of(tensors: Mapping[str, Tensor]) -> bytes:
    """Return what a file of these tensors begins with, in the order in which they lie there."""
    return _header([(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()])


def _header(forms: Iterable[tuple[str, torch.dtype, tuple[int, ...]]]) -> bytes:
    entries: dict[str, Any] = {}
    position = 0
    for name, dtype, shape in forms:
        end = position + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % HEADER_LENGTH)  # keeps the tensors aligned
    return len(text).to_bytes(HEADER_LENGTH, "little") + text


def read_shard(folder: Path, record: ShardRecord) -> dict[str, Tensor]:
    """Return all tensors of a shard, if every byte is as recorded.

    Raises:
        CorruptCheckpointError: says what is not.
        OSError: the file cannot be read now.
        MemoryError: there is no room for it.
    """
    path = folder / record.file
    with telling(path, "opened"), open_regular(path) as descriptor:
        starts = _verify_header(descriptor, record)
        tensors = {name: _empty(record.tensors[name]) for name in starts}
        found = _read(descriptor, tensors, starts)
    for name, digest in found.items():
        if digest != record.tensors[name].sha256:
            raise CorruptCheckpointError(
                f"{record.file} does not have the SHA-256 of the manifest: the content of {name} has changed"
            )
        if tensors[name].dtype == torch.bool and tensors[name].numel() and tensors[name].view(torch.uint8).max() > 1:
            raise CorruptCheckpointError(f"{record.file} holds {name} with truth values that are neither")
    return tensors


def _verify_header(descriptor: int, record: ShardRecord) -> dict[str, int]:
    """Return where each tensor begins. The header is compared with what it must be, so no unknown one is parsed."""
    length = os.fstat(descriptor).st_size
    if length != record.length:
        raise CorruptCheckpointError(f"{record.file} has {length} bytes instead of {record.length}")
    names = sorted(record.tensors, key=lambda name: (-_dtype(record.tensors[name]).itemsize, name))
    sizes = [_size(record.tensors[name]) for name in names]
    header = _header([(name, _dtype(record.tensors[name]), record.tensors[name].shape) for name in names])
    if len(header) + sum(sizes) != length:
        raise CorruptCheckpointError(f"{record.file} does not have the bytes of the tensors that the manifest names")
    digests = [record.tensors[name].sha256 for name in names]
    if os.pread(descriptor, len(header), 0) != header or _whole(header, digests) != record.sha256:
        raise CorruptCheckpointError(f"{record.file} does not have the SHA-256 of the manifest: its header has changed")
    return dict(zip(names, itertools.accumulate(sizes, initial=len(header)), strict=False))


def _empty(record: TensorRecord) -> Tensor:
    try:
        return torch.empty(record.shape, dtype=_dtype(record))
    except RuntimeError as error:  # torch's word for it
        raise MemoryError(str(error)) from None


def _read(descriptor: int, tensors: Mapping[str, Tensor], starts: Mapping[str, int]) -> dict[str, str]:
    """Fill the tensors. Return the hash of each."""

    def fill(name: str) -> str:
        return _fill(descriptor, memory(tensors[name]), starts[name])

    if sum(tensor.nbytes for tensor in tensors.values()) < _WORTH_THREADS:
        return {name: fill(name) for name in tensors}
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(tensors, threads.map(fill, tensors), strict=True))


def _fill(descriptor: int, buffer: memoryview, position: int) -> str:
    """Read bytes and return their hash. A mapped page would kill the process where a disk fails, at each restart."""
    digest = hashlib.sha256()
    while buffer:
        count = os.preadv(descriptor, [buffer[:_AT_ONCE]], position)
        if not count:
            return ""  # it has become shorter
        digest.update(buffer[:count])
        buffer, position = buffer[count:], position + count
    return digest.hexdigest()


def _size(tensor: TensorRecord) -> int:
    return math.prod(tensor.shape) * _dtype(tensor).itemsize


def _dtype(record: TensorRecord) -> torch.dtype:
    dtype = getattr(torch, record.dtype, None)
    if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
        raise CorruptCheckpointError(f"{record.dtype!r:.40} is no dtype of a checkpoint")
    return dtype
