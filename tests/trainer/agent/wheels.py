"""Wheels and sources of packages made on the spot, and an index of them on loopback that may want a password."""

from __future__ import annotations

import base64
import contextlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def wheel(
    folder: Path, name: str, version: str, *, tag: str = "py3-none-any", needs: str = "", python: str = ">=3.9"
) -> Path:
    """A wheel with one module that says its version, and a program of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    about = f"Name: {name}\nVersion: {version}\nRequires-Python: {python}\n"
    about += f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": f"VERSION = '{version}'\n\ndef main():\n    print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\n{about}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for one, text in files.items():
            archive.writestr(one, text)
    return path


def source(folder: Path, name: str, version: str) -> Path:
    """A package that has no wheel, and cannot be built: its setup.py fails."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in (
            ("setup.py", "raise SystemExit('no compiler here')\n"),
            ("pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = 'nothing'\n"),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@contextlib.contextmanager
def index(folder: Path, password: str = "", host: str = "127.0.0.1") -> Iterator[int]:
    """Serve a folder of wheels as an index (PEP 503); the port."""
    wanted = base64.b64encode(f"me:{password}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if password and self.headers.get("Authorization") != f"Basic {wanted}":
                self.send_error(401)
                return
            name = self.path.strip("/").rpartition("/")[2]
            file = folder / name
            links = [path.name for path in folder.iterdir() if path.name.startswith(f"{name}-")]
            if not file.is_file() and not links:
                self.send_error(404)
                return
            page = "".join(f'<a href="/files/{one}">{one}</a>' for one in links)
            data = file.read_bytes() if file.is_file() else f"<!DOCTYPE html><html><body>{page}</body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if file.is_file() else "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
