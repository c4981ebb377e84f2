"""Gets images into nodes without copying gigabytes: one containerd root is filled, nodes are cloned from it.

A containerd never changes a blob or a finished snapshot in place, so a clone is hard links and a copy of the small
databases; and what one clone linked, the next moves over. `cluster.py` fills the store, `node.py` clones it, and
`deliver` brings a running node up to date.
"""

import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from tools.onebox import processes, registry
from tools.onebox.paths import CACHE, IMAGES, LOGS, RUN, STORE
from tools.onebox.processes import Daemon
from tools.onebox.shell import OneboxError, lock, run, step, succeeds

SOCKET = RUN / "store" / "containerd.sock"
LOADED = STORE / "loaded"  # the digests that the store holds, so that a warm start need not ask
ORIGINAL = STORE / "containerd"
SNAPSHOTTER = "io.containerd.snapshotter.v1.overlayfs"
SNAPSHOTS = Path(SNAPSHOTTER, "snapshots")  # one numbered folder per unpacked layer or container

CONFIGURATION = f"""
version = 2
root = "{ORIGINAL}"
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
                deliver(SOCKET, ORIGINAL)
            finally:
                processes.stop("image-store")
                processes.forget("image-store")
            LOADED.write_text(_wanted())


def node_root(node: str) -> Path:
    """Name the containerd root of a node; it stays between clusters, so that the next clone is quick."""
    return STORE / node


def clone(node: str) -> None:
    """Make a node's containerd root anew out of the store, without anything of the containers that ran on it."""
    with lock(CACHE / "store.lock"):
        if not LOADED.exists():
            raise OneboxError("no images are loaded: run `python -m tools.onebox images`")
        old, new = node_root(node), STORE / f"{node}.new"
        run("rm", "-rf", new)
        (new / SNAPSHOTS).mkdir(parents=True)
        for entry in (ORIGINAL / SNAPSHOTTER / "metadata.db", *ORIGINAL.iterdir()):
            if entry.name != SNAPSHOTTER:
                run("cp", "--archive", "--link", entry, new / entry.relative_to(ORIGINAL))
        _take_snapshots(old, new)
        _separate_databases(new)
        run("rm", "-rf", old)
        new.rename(old)


def deliver(socket: Path, root: Path, images: Iterable[str] = IMAGES) -> set[str]:
    """Bring these images of a running containerd up to date, and name those that it did not have."""
    missing = {image for image in images if not _has(socket, image)}
    with registry.serve() as address:
        for image in sorted(missing):
            _link_blobs(image, root)
            _pull(socket, image, address)
    return missing


def take_in(socket: Path, name: str, archive: Path) -> None:
    """Give a running containerd the image of an archive, under a name and its digest."""
    _ctr(socket, "images", "import", "--digests", "--base-name", name, str(archive))


def _take_snapshots(old: Path, new: Path) -> None:
    """Move the snapshots that the old clone shares with the store, link the others."""
    wanted = sorted(folder.name for folder in (ORIGINAL / SNAPSHOTS).iterdir())
    shared = _shared(old)
    for name in wanted:
        if name in shared:
            (old / SNAPSHOTS / name).rename(new / SNAPSHOTS / name)
        else:
            run("cp", "--archive", "--link", ORIGINAL / SNAPSHOTS / name, new / SNAPSHOTS / name)
    (new / "cloned").write_text("\n".join(wanted))


def _shared(old: Path) -> set[str]:
    """Name the snapshots of a clone that came from this very store; other numbers are containers of its own."""
    life = ORIGINAL / "life"  # differs when the store was made anew, and numbers began again
    if not (old / "cloned").exists() or (old / "life").read_text() != life.read_text():
        return set()
    return {name for name in (old / "cloned").read_text().split() if (old / SNAPSHOTS / name).exists()}


def _separate_databases(root: Path) -> None:
    """Give a clone its own databases: they alone are written in place."""
    for database in root.glob("*/*.db"):
        private = database.with_suffix(".copy")
        shutil.copy2(database, private)
        private.replace(database)


def _has(socket: Path, image: str) -> bool:
    """Say whether a containerd's image is the one that was built last."""
    digest = registry.manifest_digest(image)
    lines = _ctr(socket, "images", "list", f"name=={image}").splitlines()[1:]
    return digest is not None and any(digest in line for line in lines)


def _start() -> None:
    for folder in (ORIGINAL, SOCKET.parent, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    if not (ORIGINAL / "life").exists():
        (ORIGINAL / "life").write_text(uuid.uuid4().hex)
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
        raise OneboxError(f"{image} is not built: run `python -m tools.onebox images`")
    content = registry.manifest(digest)
    return [digest, *(str(part["digest"]) for part in (content["config"], *content["layers"]))]


def _wanted() -> str:
    return "\n".join(f"{image} {registry.manifest_digest(image)}" for image in IMAGES)
