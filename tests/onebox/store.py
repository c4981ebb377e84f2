"""Gets images into nodes without copying gigabytes: one containerd root is filled, nodes are cloned from it.

A containerd store never changes a blob or an unpacked layer in place, so a clone is hard links and a copy of the
small databases: a second or two for ten gigabytes. `cluster.py` fills the store, `node.py` clones it, and
`deliver` brings a running node up to date.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.onebox import processes, registry
from tests.onebox.paths import CACHE, IMAGES, LOGS, RUN, STORE
from tests.onebox.processes import Daemon
from tests.onebox.shell import OneboxError, lock, run, step, succeeds

SOCKET = RUN / "store" / "containerd.sock"
LOADED = STORE / "loaded"  # the digests that the store holds, so that a warm start need not ask

CONFIGURATION = f"""
version = 2
root = "{STORE}/containerd"
state = "{RUN}/store/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{SOCKET}"
"""


def fill() -> None:
    """Load every built image into the store, unless it is there."""
    with lock(CACHE / "store.lock"):
        if LOADED.exists() and LOADED.read_text() == _wanted():
            return
        with step("Loading images into the store"):
            LOADED.unlink(missing_ok=True)
            _start()
            try:
                deliver(SOCKET, STORE / "containerd")
            finally:
                processes.stop("image-store")
                processes.forget("image-store")
            LOADED.write_text(_wanted())


def clone(target: Path) -> None:
    """Make a node's containerd root out of the store."""
    with lock(CACHE / "store.lock"):
        if not LOADED.exists():
            raise OneboxError("no images are loaded: run `python -m tests.onebox images`")
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        run("cp", "--archive", "--link", STORE / "containerd", target)
        for database in target.rglob("*.db"):  # written in place, so each node needs its own
            private = database.with_suffix(".copy")
            shutil.copy2(database, private)
            private.replace(database)


def deliver(socket: Path, root: Path) -> set[str]:
    """Bring the images of a running containerd up to date, and name those that it did not have."""
    missing = {image for image in IMAGES if not _has(socket, image)}
    with registry.serve() as address:
        for image in sorted(missing):
            _link_blobs(image, root)
            _pull(socket, image, address)
    return missing


def _has(socket: Path, image: str) -> bool:
    """Say whether a containerd's image is the one that was built last."""
    digest = registry.manifest_digest(image)
    lines = _ctr(socket, "images", "list", f"name=={image}").splitlines()[1:]
    return digest is not None and any(digest in line for line in lines)


def _start() -> None:
    (STORE / "containerd").mkdir(parents=True, exist_ok=True)
    SOCKET.parent.mkdir(parents=True, exist_ok=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    file = STORE / "containerd.toml"
    file.write_text(CONFIGURATION)
    processes.start(Daemon("image-store", ("/usr/bin/containerd", "--config", str(file)), "store"))
    processes.wait(lambda: succeeds("ctr", "--address", SOCKET, "version"), "the image store answers", 20)


def _ctr(socket: Path, *words: str) -> str:
    return run("nice", "ctr", "--address", socket, "--namespace", "k8s.io", *words)


def _pull(socket: Path, image: str, address: str) -> None:
    """Pull under the registry's address, then give the image its own name: the one that pods ask for."""
    pulled = image.replace("docker.io", address)
    _ctr(socket, "images", "pull", "--plain-http", "--snapshotter", "overlayfs", pulled)
    _ctr(socket, "images", "tag", "--force", pulled, image)
    _ctr(socket, "images", "remove", pulled)


def _link_blobs(image: str, root: Path) -> None:
    """Put an image's blobs where containerd keeps its own; the pull then finds them and copies nothing."""
    folder = root / "io.containerd.content.v1.content" / "blobs" / "sha256"
    folder.mkdir(parents=True, exist_ok=True)
    for digest in _blobs(image):
        target = folder / digest.removeprefix("sha256:")
        if not target.exists():
            os.link(registry.blob(digest), target)


def _blobs(image: str) -> Iterable[str]:
    digest = registry.manifest_digest(image)
    if digest is None:
        raise OneboxError(f"{image} is not built: run `python -m tests.onebox images`")
    content = registry.manifest(digest)
    return [digest, *(str(part["digest"]) for part in (content["config"], *content["layers"]))]


def _wanted() -> str:
    return "\n".join(f"{image} {registry.manifest_digest(image)}" for image in IMAGES)
