"""A read-only image registry over an OCI layout, on loopback, for as long as a `with` block lasts.

`store.py` opens it so that a containerd can pull: a pull asks for missing blobs only, where an import of an archive
reads gigabytes to find one changed file.
"""

import contextlib
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.onebox.paths import LAYOUT

TAG = "org.opencontainers.image.ref.name"


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Serve the layout and yield the address, such as `127.0.0.1:40123`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def manifest_digest(image: str) -> str | None:
    """Look up which manifest an image's tag stands for."""
    for entry in index():
        if entry.get("annotations", {}).get(TAG) == image:
            return str(entry["digest"])
    return None


def index() -> list[dict[str, Any]]:
    """Read the layout's table of images."""
    try:
        return list(json.loads((LAYOUT / "index.json").read_text())["manifests"])
    except FileNotFoundError:
        return []


def manifest(digest: str) -> dict[str, Any]:
    """Read one manifest."""
    return dict(json.loads(blob(digest).read_text()))


def blob(digest: str) -> Path:
    """Name the file that holds a blob."""
    return LAYOUT / "blobs" / digest.replace(":", "/")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with headers and content."""
        self._answer(content=True)

    def do_HEAD(self) -> None:
        """Answer with headers alone."""
        self._answer(content=False)

    def log_message(self, *_: object) -> None:
        """Stay silent: who pulls says enough."""

    def _answer(self, *, content: bool) -> None:
        # /v2/<name>/manifests/<tag or digest>  or  /v2/<name>/blobs/<digest>
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts == ["v2"]:
            self._headers(200, 0)
            return
        name, kind, reference = "/".join(parts[1:-2]), parts[-2] if len(parts) > 2 else "", parts[-1]
        digest = reference if ":" in reference else manifest_digest(f"docker.io/{name}:{reference}")
        if digest is None or not blob(digest).is_file():
            self._headers(404, 0)
            return
        media = str(manifest(digest)["mediaType"]) if kind == "manifests" else "application/octet-stream"
        self._headers(200, blob(digest).stat().st_size, media, digest)
        if content:
            with blob(digest).open("rb") as file:
                shutil.copyfileobj(file, self.wfile, 1 << 20)

    def _headers(self, status: int, size: int, media: str = "text/plain", digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Type", media)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
