"""Write and read messages: a fixed little-endian header, JSON, raw tensor bytes.

    magic 4, number of tensors 4, length of the JSON 8, length of the tensors 8, sequence number 8, signature 16
    JSON: {"name": ..., "values": {...}, "tensors": [["float32", [3, 4]], ...]}
    the tensors' bytes, one after the other

The signature is an HMAC-SHA256 under the session key, cut to 16 bytes, over direction, header and JSON: a message can
be neither forged, repeated, left out nor sent back. The tensors' bytes are not signed: they are as safe as NCCL's
and gloo's, which is as safe as the network (docs/security.md). Both lengths are checked against bounds before any
memory is taken.
"""

from __future__ import annotations

import hmac
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainmaster_trainer.errors import ConfigurationError

_HEADER = struct.Struct("<4sIQQQ")
_MAGIC = b"TMf1"
SIGNATURE = 16
HEADER_SIZE = _HEADER.size + SIGNATURE
MAX_JSON = 1 << 28
MAX_TENSORS = 1 << 22
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
        *(torch.uint64, torch.uint32, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.complex64, torch.complex128),
    )
}
Values = dict[str, Any]
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_compact = json.JSONEncoder(separators=(",", ":"), check_circular=False)


class BadFrameError(ConnectionError):
    """BadFrameError says that what came is no valid message. The connection cannot be used any more."""


class OtherTensorsError(ConfigurationError):
    """OtherTensorsError says that a valid message has the tensors of another model. To ask again would not help."""


@dataclass
class Message:
    """Message is a request or an answer: a name, JSON values, and tensors (contiguous, on the CPU)."""

    name: str
    values: Values = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Header:
    """Header holds what the header of a message says."""

    count: int
    json_length: int
    payload: int  # bytes of all tensors


def encode(message: Message, key: bytes, direction: bytes, sequence: int) -> tuple[bytes, list[memoryview]]:
    """Return header and JSON in one piece, and the tensors' memory, not copied."""
    parts = {"name": message.name, "values": message.values, "tensors": describe(message.tensors)}
    text = _compact.encode(parts).encode()
    views = [memory(tensor) for tensor in message.tensors]
    header = _HEADER.pack(_MAGIC, len(views), len(text), sum(map(len, views)), sequence)
    return header + sign(header, text, key, direction) + text, views


def describe(tensors: Sequence[Tensor]) -> list[tuple[str, list[int]]]:
    """Return dtypes and shapes of tensors in the form that the JSON has."""
    return [(_NAMES[tensor.dtype], list(tensor.shape)) for tensor in tensors]


def sign(header: bytes, text: bytes, key: bytes, direction: bytes) -> bytes:
    """Return the signature of a message."""
    return hmac.digest(key, direction + header + text, "sha256")[:SIGNATURE]


def decode_header(data: bytes, sequence: int, most: int) -> Header:
    """Return the header, once its bounds are checked: no memory is reserved for a wrong one.

    Raises:
        BadFrameError: it is no header, or out of bounds, or out of sequence.
    """
    magic, count, json_length, payload, found = _HEADER.unpack(data[: _HEADER.size])
    if magic != _MAGIC or found != sequence:
        raise BadFrameError("no header where one should be")
    if json_length > MAX_JSON or count > MAX_TENSORS or payload > most:
        raise BadFrameError(f"a message of {json_length} + {payload} bytes and {count} tensors is too big")
    return Header(count, json_length, payload)


def decode_text(data: bytes, text: bytes, key: bytes, direction: bytes) -> tuple[Message, list[tuple[str, list[int]]]]:
    """Return the message without its tensors, and their dtypes and shapes.

    Raises:
        BadFrameError: the signature is not the peer's, or the text is not what it should be.
    """
    header, signature = data[: _HEADER.size], data[_HEADER.size :]
    if not hmac.compare_digest(signature, sign(header, text, key, direction)):
        raise BadFrameError("a message with a wrong signature")
    try:
        plain = json.loads(text)
        described = [(str(dtype), [int(size) for size in shape]) for dtype, shape in plain["tensors"]]
        return Message(str(plain["name"]), dict(plain["values"])), described
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadFrameError(f"a message that is not JSON as agreed: {error}") from None


def size_of(dtype: str, shape: list[int]) -> int:
    """Return the bytes of a tensor.

    Raises:
        BadFrameError: there is no such tensor.
    """
    if dtype not in DTYPES or min(shape, default=0) < 0:
        raise BadFrameError(f"a tensor that cannot be: {dtype}{shape}")
    return math.prod(shape) * DTYPES[dtype].itemsize


def memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, not copied."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
