"""Bound the answers of an S3 server, for its client: no answer is held that is larger than what was asked for.

The client reads a list or an error to its end, whatever its length, and what it reads of an object only as far as the
server says it goes. Only `remote.py` imports this: it needs S3's driver.
"""

from __future__ import annotations

import io
import re
from typing import Any

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import ConnectionClosedError

_MOST = 4 << 20  # bytes of an answer: a list of a thousand objects has at most three
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")
_AT_ONCE = 1 << 18


class ObjectTooLargeError(OSError):
    """An answer is larger than any of a store."""


class BoundedSession(AIOHTTPSession):  # type: ignore[misc]  # it has no types
    """BoundedSession reads each answer as far as it may go, before the client sees it."""

    async def send(self, request: Any) -> AioAWSResponse:
        """Send a request.

        Raises:
            TooLargeError: the answer is larger than any of a store.
        """
        streamed, request.stream_output = request.stream_output, True  # else all of it is read
        try:
            answer = await super().send(request)
        finally:
            request.stream_output = streamed
        try:
            data = await _read(answer.raw, _asked_for(request) if answer.status_code < 300 else None)  # noqa: PLR2004
        except aiohttp.ClientError as error:
            raise ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from None
        headers = {**answer.headers, "content-length": str(len(data))}
        if request.method == "HEAD":
            headers = answer.headers
        held = AioAWSResponse(answer.url, answer.status_code, headers, _Held(data, answer.url))
        held._content = data  # noqa: SLF001 (it has no other way)
        return held


def _asked_for(request: Any) -> int | None:
    """Return the number of bytes of an object that a request asks for; None if it asks for something else."""
    value = request.headers.get("Range", b"")
    match = _RANGE.fullmatch(value.decode() if isinstance(value, bytes) else value)
    return int(match[2]) - int(match[1]) + 1 if match else None


async def _read(raw: aiohttp.ClientResponse, asked_for: int | None) -> bytes:
    """Return the body; of an object no more than was asked for, however much there is."""
    data = bytearray()
    while chunk := await raw.content.read(_AT_ONCE):
        data += chunk
        if asked_for is not None and len(data) >= asked_for:
            break
        if asked_for is None and len(data) > _MOST:
            raw.close()
            raise ObjectTooLargeError(f"an answer has more than {_MOST} bytes")
    if raw.content.at_eof():
        raw.release()
    else:
        raw.close()
    return bytes(data if asked_for is None else data[:asked_for])


class _Held:
    """_Held looks like an answer whose body is still to be read."""

    def __init__(self, data: bytes, url: str) -> None:
        self.url = url
        self.content = _Content(data)

    def close(self) -> None:
        """Do nothing: the connection has been given back."""


class _Content:
    def __init__(self, data: bytes) -> None:
        self._file, self._length = io.BytesIO(data), len(data)

    async def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def at_eof(self) -> bool:
        return self._file.tell() == self._length
