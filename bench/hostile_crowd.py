"""Strangers and their connections to the operator's intake, for `bench hostile`: idle ones, slow ones, floods.

They come from many loopback addresses, as each address may have few connections, and open again what is closed. This
process gives way to others (nice), for on one machine it would take the operator's cores, which no stranger has.
"""

import asyncio
import contextlib
import itertools
import json
import os
import resource
import socket
import sys
from pathlib import Path

from trainmaster.wire import names

IDLE = 10_000
SLOW_READERS = 200
FLOODS = 8
REOPEN_SECONDS = 1.0
REPORT_SECONDS = 0.2
HEAD = f"POST {names.HEARTBEAT_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer none\r\n"
# What is said on a connection that stays: nothing, half a head, half a body.
WORDS = (b"", b"POST /v1/heart", f"{HEAD}Content-Length: 200000\r\n\r\n".encode() + b"[" * 20_000)
FLOOD = (
    f"{HEAD}Content-Length: 2\r\n\r\n[]".encode(),
    b"\x16\x03\x01\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"x" * 9000,
    b"POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n",
)

_numbers = itertools.count()


class Crowd:
    """All of them."""

    def __init__(self, host: str, port: int, report: Path) -> None:
        self._address = host, port
        self._report = report
        self.opened = self.open = self.flooded = 0

    async def live(self) -> None:
        """Until it is killed."""
        async with asyncio.TaskGroup() as group:
            for number in range(IDLE):
                group.create_task(self._stay(WORDS[number % len(WORDS)]))
            for _ in range(SLOW_READERS):
                group.create_task(self._read_slowly())
            for number in range(FLOODS):
                group.create_task(self._flood(FLOOD[number % len(FLOOD)]))
            group.create_task(self._tell())

    async def _connect(self, receive: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        line = socket.socket()
        line.setblocking(False)
        if receive:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        line.bind((f"127.0.1.{1 + next(_numbers) % 200}", 0))
        try:
            await asyncio.get_running_loop().sock_connect(line, self._address)
        except OSError:
            line.close()
            raise
        self.opened += 1
        return await asyncio.open_connection(sock=line)

    async def _stay(self, words: bytes) -> None:
        await asyncio.sleep(next(_numbers) % 1000 / 200)  # in five seconds all have come
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await self._connect()
                self.open += 1
                try:
                    writer.write(words)
                    await reader.read()
                finally:
                    self.open -= 1
                    writer.close()
            await asyncio.sleep(REOPEN_SECONDS)

    async def _read_slowly(self) -> None:
        """Ask again and again and read no answer."""
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await self._connect(1024)
                reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001  it reads ahead by itself
                for _ in range(1000):
                    writer.write(FLOOD[0])
                    await writer.drain()
                    await asyncio.sleep(0.05)
                writer.close()
            await asyncio.sleep(REOPEN_SECONDS)

    async def _flood(self, words: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await self._connect()
                writer.write(words)
                await asyncio.wait_for(reader.read(100), 5)
                self.flooded += 1
                writer.close()

    async def _tell(self) -> None:
        while True:
            draft = self._report.with_suffix(".new")
            draft.write_text(json.dumps({"open": self.open, "opened": self.opened, "flooded": self.flooded}))
            os.replace(draft, self._report)  # noqa: PTH105  the reader never sees half of it
            await asyncio.sleep(REPORT_SECONDS)


def main(host: str, port: str, report: str) -> None:
    """Come."""
    os.nice(10)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(Crowd(host, int(port), Path(report)).live())


if __name__ == "__main__":
    main(*sys.argv[1:])
