"""A proxy before a real API server that kills a client right before or right after a call of its choice."""

import http.client
import os
import signal
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from .apiserver import ApiServer


class CuttingProxy:
    """Forward calls that change something, one by one; at number `cut` the client dies, before or after it is done."""

    def __init__(self, server: ApiServer, cut: int, *, done: bool, lose: bool = False) -> None:
        self.calls: list[str] = []
        self.pid = 0
        self.ended = 0
        self._cut, self._done, self._lose = cut, done, lose
        self._server = server
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._http.shutdown()
        self._http.server_close()

    def kubeconfig(self, path: Path) -> Path:
        """The administrator's, by way of here."""
        content = yaml.safe_load(self._server.kubeconfig(path).read_text())
        content["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._http.server_port}"}
        path.write_text(yaml.safe_dump(content))
        return path

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes] | None:
        """The API server's answer; None where the client is not to get it."""
        if method == "GET":
            return self._forward(method, path, headers, body)
        self.calls.append(f"{method} {path.rpartition('/')[2]}")
        here = len(self.calls) == self._cut
        if here and not self._done:
            self._end()
            return None
        answered = self._forward(method, path, headers, body)
        if not here:
            return answered
        self._end()
        return None

    def _end(self) -> None:
        if not self._lose:
            os.kill(self.pid, signal.SIGKILL)

    def _forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        trust = ssl.create_default_context(cafile=str(self._server.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", self._server.port, context=trust)
        passed = {"Authorization": f"Bearer {self._server.token}", "Content-Type": headers.get("Content-Type", "")}
        connection.request(method, path, body or None, passed)
        response = connection.getresponse()
        return response.status, response.read()


def _handler(proxy: CuttingProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answered = proxy.answer(self.command, self.path, dict(self.headers), body)
            if answered is None:
                self.close_connection = True
                return
            self.send_response(answered[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answered[1])))
            self.end_headers()
            self.wfile.write(answered[1])

        do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815  names of the standard library's

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler
