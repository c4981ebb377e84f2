"""Requests to the private API server, as its administrator: what the measurement, its kubelet and its peer share."""

import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

Document = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Places:
    """Where everything is: handed to the processes of the measurement as a JSON file."""

    server: str
    token: str
    certificate: str
    operator: str
    peer_port: int
    report: str  # the file in which the agents tell how they are
    go: str  # the kubelet does nothing before this path exists

    def save(self, path: Path) -> Path:
        """For another process; it holds the administrator's token."""
        path.touch(0o600)
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: str) -> "Places":
        """What another process saved."""
        return cls(**json.loads(Path(path).read_text()))


class Api:
    """One session. Use as an asynchronous context manager."""

    def __init__(self, places: Places, most: int = 24) -> None:
        self._places = places
        self._most = most
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cafile=self._places.certificate)
        headers = {"Authorization": f"Bearer {self._places.token}", "User-Agent": "bench"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
        connector = aiohttp.TCPConnector(limit=self._most, ssl=trust)
        self._session = aiohttp.ClientSession(
            self._places.server, headers=headers, timeout=timeout, connector=connector
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Document:
        """One request that must go well."""
        data = None if body is None else json.dumps(body).encode()
        async with self._open().request(method, path, data=data, headers={"Content-Type": content_type}) as response:
            answer: Document = json.loads(await response.read())
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {answer.get('message')}")
        return answer

    async def list_and_watch(self, path: str, selector: str = "") -> AsyncIterator[tuple[str, Document]]:
        """Every object that is there, and then every event: (type, object)."""
        query = f"?labelSelector={selector}" if selector else "?"
        listed = await self.call("GET", path + query)
        for item in listed["items"]:
            yield "ADDED", item
        version = listed["metadata"]["resourceVersion"]
        del listed
        watch = f"{path}{query}&watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=3600"
        async with self._open().get(watch) as response:
            async for line in response.content:
                event = json.loads(line)
                yield event["type"], event["object"]

    def _open(self) -> aiohttp.ClientSession:
        assert self._session, "use it in an `async with`"
        return self._session
