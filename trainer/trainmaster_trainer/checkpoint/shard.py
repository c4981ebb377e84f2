"""Write and read one rank's part of a checkpoint: a safetensors file, and the record by which it is checked.

It is written here, byte by byte, because the hash is taken on the way and no second copy of the tensors is made; the
format is https://github.com/huggingface/safetensors#format. The header follows from the record, so it is compared and
never parsed; the tensors are hashed as they are read, into the very memory that the training goes on with.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trainmaster.wire.files import open_to_read
from trainmaster.wire.manifest import ShardRecord, TensorRecord

from trainmaster_trainer.checkpoint.bulk import Arrival, write_parts
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError, telling
from trainmaster_trainer.checkpoint.soundness import Allowed, UnsoundError, complaint
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


def write_shard(
    path: Path,
    tensors: Mapping[str, Tensor],
    arrival: Arrival = lambda _: None,
    image: memoryview | None = None,
    allowed: Allowed | None = None,
) -> ShardRecord:
    """Write CPU tensors and bring them to the disk.

    Their content may still be on its way: `arrival(name)` returns when it is there. `image`: memory that looks like the
    file already (`image.py`), if there is such. `allowed`: what they may hold (`soundness.py`); None: anything.

    Raises:
        UnsoundError: one holds something else. The file is written nevertheless.
    """
    tensors, header = laid_out(tensors)
    parts = {HEADER: memoryview(header), **{name: memory(one) for name, one in tensors.items()}}
    length = sum(map(len, parts.values()))
    complaints: list[str] = []

    def digest(name: str) -> str:
        arrival(name)
        if allowed is not None and (wrong := complaint(name, tensors[name], allowed)):
            complaints.append(wrong)
        return hashlib.sha256(parts[name]).hexdigest()

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with ThreadPoolExecutor(_THREADS) as threads:  # hashing and writing both let go of the interpreter's lock
            digests = threads.map(digest, tensors)
            write_parts(descriptor, parts, length, arrival, image)
            os.fsync(descriptor)
            known = list(digests)
    finally:
        os.close(descriptor)
    if complaints:
        raise UnsoundError(min(complaints))
    records = {
        name: TensorRecord(dtype_name(one.dtype), tuple(one.shape), (0,) * one.dim(), own)
        for (name, one), own in zip(tensors.items(), known, strict=True)
    }
    whole = hashlib.sha256(header + "".join(known).encode()).hexdigest()
    return ShardRecord(path.name, length, whole, records)


def memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, not copied."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # arrays are buffers


def laid_out(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], bytes]:
    """Return the tensors in the order in which they lie in a file, and what the file begins with.

    Wide elements first keeps every tensor aligned; the names make the file a pure function of its content.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    entries: dict[str, Any] = {}
    position = 0
    for name in names:
        tensor = tensors[name]
        end = position + tensor.nbytes
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % HEADER_LENGTH)  # keeps the tensors aligned
    return {name: tensors[name] for name in names}, len(text).to_bytes(HEADER_LENGTH, "little") + text


def read_shard(folder: Path, record: ShardRecord) -> dict[str, Tensor]:
    """Return all tensors of a shard, if every byte is as recorded.

    Raises:
        CorruptCheckpointError: says what is not.
        OSError: the file cannot be read now.
        MemoryError: there is no room for it.
    """
    path = folder / record.file
    with telling(path, "opened"), os.fdopen(open_to_read(path), "rb", buffering=0) as file:
        forms, starts = _verify_header(file.fileno(), record)
        try:
            tensors = {name: torch.empty_like(form, device="cpu") for name, form in forms.items()}
        except RuntimeError as error:  # torch's word for it
            raise MemoryError(str(error)) from None
        work = [file.fileno()] * len(tensors), map(memory, tensors.values()), starts
        if sum(tensor.nbytes for tensor in tensors.values()) < _WORTH_THREADS:
            digests = list(map(_fill, *work))
        else:
            with ThreadPoolExecutor(_THREADS) as threads:
                digests = list(threads.map(_fill, *work))
    for (name, tensor), digest in zip(tensors.items(), digests, strict=True):
        if digest != record.tensors[name].sha256:
            raise CorruptCheckpointError(
                f"{record.file} does not have the SHA-256 of the manifest: the content of {name} has changed"
            )
        if tensor.dtype == torch.bool and tensor.numel() and tensor.view(torch.uint8).max() > 1:
            raise CorruptCheckpointError(f"{record.file} holds {name} with truth values that are neither")
    return tensors


def _verify_header(descriptor: int, record: ShardRecord) -> tuple[dict[str, Tensor], list[int]]:
    """Return the tensors of the file, without memory, and where each begins.

    The header is compared with what it must be for these, so no unknown one is parsed.
    """
    length = os.fstat(descriptor).st_size
    if length != record.length:
        raise CorruptCheckpointError(f"{record.file} has {length} bytes instead of {record.length}")
    forms = {}
    for name, one in record.tensors.items():
        dtype = getattr(torch, one.dtype, None)
        if dtype not in DTYPES:
            raise CorruptCheckpointError(f"{one.dtype!r:.40} is no dtype of a checkpoint")
        forms[name] = torch.empty(one.shape, dtype=dtype, device="meta")
    forms, header = laid_out(forms)
    *starts, end = itertools.accumulate((form.nbytes for form in forms.values()), initial=len(header))
    if end != length:
        raise CorruptCheckpointError(f"{record.file} does not have the bytes of the tensors that the manifest names")
    digests = "".join(record.tensors[name].sha256 for name in forms)
    whole = hashlib.sha256(header + digests.encode()).hexdigest()
    if os.pread(descriptor, len(header), 0) != header or whole != record.sha256:
        raise CorruptCheckpointError(f"{record.file} does not have the SHA-256 of the manifest: its header has changed")
    return forms, starts


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
