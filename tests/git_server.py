"""A real git server over HTTP on loopback: git's own http-backend, with a password where a test wants one."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

IDENTITY = {
    **{f"GIT_{who}_NAME": "Trainmaster" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "none@example.org" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; what it prints."""
    done = subprocess.run(["git", *words], cwd=folder, env={**os.environ, **IDENTITY}, check=True, capture_output=True)
    return done.stdout.decode().strip()


def commit(folder: Path) -> str:
    """Commit all that is in a folder; the name of the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "what is there", "--allow-empty")
    return git(folder, "rev-parse", "HEAD")


@dataclass
class GitServer:
    """Serves all repositories below a folder. `failing`: how many requests it answers with 503 first."""

    root: Path
    password: str = ""
    failing: int = 0
    host: str = "127.0.0.1"
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer((self.host, 0), _handler(self))

    @property
    def url(self) -> str:
        """Where the repositories are."""
        return f"http://{self.host}:{self._server.server_port}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[GitServer]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            server.seen.append(self.path)
            if server.failing > 0:
                server.failing -= 1
                self.send_error(503)
                return
            wanted = base64.b64encode(f"me:{server.password}".encode()).decode()
            if server.password and self.headers.get("Authorization") != f"Basic {wanted}":
                self.send_error(401)
                return
            path, _, query = self.path.partition("?")
            variables = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
            }
            done = subprocess.run(["git", "http-backend"], input=body, env=variables, capture_output=True, check=False)
            head, _, answer = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

    return Handler
