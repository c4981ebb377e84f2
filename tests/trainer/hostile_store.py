"""A server that answers S3's requests as no store would: without end, with other lengths than it says, or never.

The first word of a key names what it does.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self
from urllib.parse import parse_qs, urlsplit

BUCKET = "checkpoints"
_ZEROS = bytes(1 << 16)
_OK = b"HTTP/1.1 200 OK\r\n"
_CLOSE = b"Connection: close\r\n"
_KEY = "step-%08d.attempt-1-restart-0/manifest.json"
_NOTED = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size>"
WAITING = (
    "endless_headers",
    "cut",
    "slow",
    "silent",
    "circle",
    "empty_pages",
    "one_page_again",
)  # of these time alone makes an end
RETRIED = ("bomb", "deep")  # botocore takes these for an error of the server, and asks again and again
Parts = Iterator[bytes]


def _zeros(head: bytes) -> Parts:
    yield head + b"\r\n"
    yield from itertools.repeat(_ZEROS)


def endless(_query: dict[str, list[str]], _prefix: str) -> Parts:
    return _zeros(_OK + _CLOSE)


def endless_chunks(_query: dict[str, list[str]], _prefix: str) -> Parts:
    yield _OK + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from itertools.repeat(b"10000\r\n" + _ZEROS + b"\r\n")


def huge(_query: dict[str, list[str]], _prefix: str) -> Parts:
    return _zeros(_OK + b"Content-Length: 1099511627776\r\n")


def endless_error(_query: dict[str, list[str]], _prefix: str) -> Parts:
    return _zeros(b"HTTP/1.1 403 Forbidden\r\n" + _CLOSE)


def endless_headers(_query: dict[str, list[str]], _prefix: str) -> Parts:
    yield _OK
    yield from (b"x-amz-meta-%d: %s\r\n" % (number, b"x" * 4000) for number in itertools.count())


def cut(_query: dict[str, list[str]], _prefix: str) -> Parts:
    yield _OK + b"Content-Length: 1000\r\n\r\n" + bytes(10)


def slow(_query: dict[str, list[str]], _prefix: str) -> Parts:
    yield _OK + b"Content-Length: 1000000\r\n\r\n"
    for _ in range(600):
        time.sleep(0.1)
        yield b"{"


def silent(_query: dict[str, list[str]], _prefix: str) -> Parts:
    time.sleep(60)
    yield b""


def circle(_query: dict[str, list[str]], prefix: str) -> Parts:
    yield b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /%s/%s\r\n" % (BUCKET.encode(), prefix.encode())
    yield b"Content-Length: 0\r\n\r\n"


def _list(content: str, after: str = "") -> Parts:
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{after}</NextContinuationToken>" if after else ""
    body = f"<ListBucketResult><Name>{BUCKET}</Name>{more}{content}</ListBucketResult>".encode()
    yield _OK + b"Content-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def _next(query: dict[str, list[str]]) -> int:
    return int(query.get("continuation-token", ["0"])[0]) + 1


def empty_pages(query: dict[str, list[str]], _prefix: str) -> Parts:
    return _list("", str(_next(query)))


def full_pages(query: dict[str, list[str]], prefix: str) -> Parts:
    number = _next(query)
    keys = (f"{prefix}{_KEY % (number * 1000 + one)}" for one in range(1000))
    return _list("".join(f"<Contents><Key>{key}</Key>{_NOTED}</Contents>" for key in keys), str(number))


def one_page_again(_query: dict[str, list[str]], prefix: str) -> Parts:
    return _list(f"<Contents><Key>{prefix}{_KEY % 1}</Key>{_NOTED}</Contents>", "1")


def listed(query: dict[str, list[str]], prefix: str) -> Parts:
    """A list that is good, of objects that never end."""
    if "list-type" in query:
        return _list(f"<Contents><Key>{prefix}{_KEY % 1}</Key>{_NOTED}</Contents>")
    return endless(query, prefix)


def bomb(_query: dict[str, list[str]], _prefix: str) -> Parts:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 100}">' for n in range(10))
    body = f"<!DOCTYPE d [{entities}]><ListBucketResult><Name>&e9;</Name></ListBucketResult>".encode()
    yield _OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def deep(_query: dict[str, list[str]], _prefix: str) -> Parts:
    return _list("<Contents>" * 20_000)


WAYS: dict[str, Callable[[dict[str, list[str]], str], Parts]] = {
    way.__name__: way
    for way in (
        endless, endless_chunks, huge, endless_error, endless_headers, cut, slow, silent, circle,
        empty_pages, full_pages, one_page_again, listed, bomb, deep,
    )
}  # fmt: skip


class HostileStore:
    """Serves until the end of the context."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                data = peer.recv(1 << 16)
                if not data:
                    return
                request += data
            method, target, _ = request.split(b"\r\n", 1)[0].decode().split(" ")
            query = parse_qs(urlsplit(target).query)
            prefix = query.get("prefix", [urlsplit(target).path.removeprefix(f"/{BUCKET}/")])[0]
            for part in WAYS[prefix.partition("/")[0]](query, prefix):
                peer.sendall(part.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else part)
