"""One rank's part of a checkpoint: a safetensors file, and the record by which it is checked.

Written here, byte by byte, because the hash is taken on the way and no second copy of the tensors is made; the
format is https://github.com/huggingface/safetensors#format. Read with the safetensors library, after its length and
hash were found right, so that its parser never sees foreign bytes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from trainmaster_trainer.checkpoint.layout import open_regular, write_all
from trainmaster_trainer.checkpoint.state import MODEL, dtype_name

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
HEADER_LENGTH = 8  # bytes of the number before the header
MAX_HEADER = 100_000_000  # the library's own limit


class CorruptCheckpointError(Exception):
    """A checkpoint that cannot be trusted. The text names what is wrong with it."""


@dataclass(frozen=True)
class TensorRecord:
    """What the manifest says of one tensor, or of the piece of it that one shard holds.

    `offset` is where the piece begins in each dimension; a whole tensor begins at zero. `sha256` is of its bytes and
    kept for the model's whole tensors only.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    sha256: str = ""


@dataclass(frozen=True)
class ShardRecord:
    """What the manifest says of one file."""

    file: str
    length: int
    sha256: str
    tensors: dict[str, TensorRecord]


def write_shard(path: Path, tensors: Mapping[str, Tensor]) -> ShardRecord:
    """Write CPU tensors and bring them to the disk."""
    # Wide elements first keeps every tensor aligned; the names make the file a pure function of its content.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header = _header({name: tensors[name] for name in names})
    whole = hashlib.sha256()
    records = {}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        length = _put(descriptor, memoryview(header), whole)
        for name in names:
            data = memory(tensors[name])
            length += _put(descriptor, data, whole)
            records[name] = record_of(name, tensors[name], data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return ShardRecord(path.name, length, whole.hexdigest(), records)


def record_of(name: str, tensor: Tensor, data: memoryview) -> TensorRecord:
    """The record of a whole tensor."""
    digest = hashlib.sha256(data).hexdigest() if name.startswith(MODEL) else ""
    return TensorRecord(dtype_name(tensor.dtype), tuple(tensor.shape), (0,) * tensor.dim(), digest)


def memory(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, not copied."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # arrays are buffers


def _put(descriptor: int, data: memoryview, digest: Any) -> int:
    digest.update(data)
    write_all(descriptor, data)
    return len(data)


def _header(tensors: Mapping[str, Tensor]) -> bytes:
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
    """
    path = folder / record.file
    _verify_bytes(path, record)
    try:
        with safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    except Exception as error:  # noqa: BLE001 (the library has a few kinds, and any of them means this)
        raise CorruptCheckpointError(f"{record.file} is not a safetensors file: {error}") from None
    _verify_tensors(record, tensors)
    return tensors


def _verify_bytes(path: Path, record: ShardRecord) -> None:
    try:
        with open_regular(path) as descriptor:
            _verify_open_file(descriptor, record)
    except OSError as error:
        raise CorruptCheckpointError(f"{record.file} cannot be opened: {error.strerror}") from None


def _verify_open_file(descriptor: int, record: ShardRecord) -> None:
    length = os.fstat(descriptor).st_size
    if length != record.length:
        raise CorruptCheckpointError(f"{record.file} has {length} bytes instead of {record.length}")
    if length < HEADER_LENGTH:
        raise CorruptCheckpointError(f"{record.file} is too short for a safetensors file")
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as data:
        header = int.from_bytes(data[:HEADER_LENGTH], "little")
        if header > min(MAX_HEADER, length - HEADER_LENGTH):
            raise CorruptCheckpointError(f"{record.file} claims a header of {header} bytes")
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise CorruptCheckpointError(
                f"{record.file} does not have the SHA-256 of the manifest: its content has changed"
            )


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
