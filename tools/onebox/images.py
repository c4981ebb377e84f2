"""Builds the images from their Dockerfiles, without a daemon, into an OCI layout in the cache folder.

`cluster.py` and `python -m tools.onebox images` call `build`. Layers are cached: a change of our own code rebuilds
the thin layers on top. The machine's certificates and pip settings are mounted while a step runs and stay outside.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from tools.onebox.paths import (
    AGENT_IMAGE,
    BUILDAH,
    CACHE,
    LAYOUT,
    OPERATOR_IMAGE,
    PAUSE_IMAGE,
    REPOSITORY,
    TRAINER_IMAGE,
)
from tools.onebox.registry import TAG, index, manifest
from tools.onebox.shell import OneboxError, lock, run, step

SUITE = "bookworm"
# TRAINMASTER_BASE_IMAGE names another base, where a registry can be reached: python:3.11-slim-bookworm, say.
BASE_IMAGE = os.environ.get("TRAINMASTER_BASE_IMAGE", f"localhost/trainmaster/base:{SUITE}")
BASE_PACKAGES = "python3,python3-venv,ca-certificates"

DOCKERFILES = {
    OPERATOR_IMAGE: "images/operator/Dockerfile",
    TRAINER_IMAGE: "images/trainer/Dockerfile",
    AGENT_IMAGE: "images/agent/Dockerfile",
}


def build() -> None:
    """Bring all images up to date; seconds when nothing but our own code changed."""
    with lock(CACHE / "images.lock"):
        BUILDAH.mkdir(parents=True, exist_ok=True)
        _ensure_base()
        _build_pause()
        for image, dockerfile in DOCKERFILES.items():
            with step(f"Building {image}"):
                _build(image, dockerfile)
                _export(image)
        _prune()


def build_framework(family: str) -> str:
    """Build the image of a family of frameworks, as a test of its Dockerfile asks for; return its name."""
    image = f"docker.io/trainmaster/{family}:dev"
    with lock(CACHE / "images.lock"), step(f"Building {image}"):
        _ensure_base()
        _build(image, f"images/frameworks/{family}/Dockerfile", Path("/etc/apt"))  # it may install Debian packages
        _export(image)
    return image


def build_above(image: str, base: str, folder: Path, place: str) -> None:
    """Put a folder's files above an image, for whoever `forget`s the new one afterwards."""
    with lock(CACHE / "images.lock"):
        container = _buildah("from", base).strip()
        _buildah("add", "--quiet", container, folder, place)
        _buildah("commit", "--quiet", "--rm", container, image)
        _export(image)


def forget(image: str) -> None:
    """Take an image out of the cache folder, with what it alone has there."""
    with lock(CACHE / "images.lock"):
        _buildah("rmi", image)
        _prune(image)


def pack(folder: Path, archive: Path) -> str:
    """Make an image of a folder's files and nothing else, as an OCI archive; return its digest."""
    told = archive.with_suffix(".digest")
    with lock(CACHE / "images.lock"):
        container = _buildah("from", "scratch").strip()
        _buildah("add", "--quiet", container, folder, "/")
        image = _buildah("commit", "--quiet", "--rm", container).strip()
        _buildah("push", "--quiet", "--digestfile", told, image, f"oci-archive:{archive}")
        _buildah("rmi", image)
    return told.read_text()


def _buildah(*words: str | Path) -> str:
    storage = ("--root", BUILDAH / "root", "--runroot", BUILDAH / "run", "--storage-driver", "overlay")
    return run("nice", "buildah", *storage, *words)


def _ensure_base() -> None:
    """Make a minimal Debian with Python: what python:3.11-slim-bookworm is, without a registry."""
    if not BASE_IMAGE.startswith("localhost/") or _buildah("images", "--quiet", "--filter", f"reference={BASE_IMAGE}"):
        return
    root = CACHE / "debootstrap"
    with step("Bootstrapping the base image"):
        shutil.rmtree(root, ignore_errors=True)
        include = f"--include={BASE_PACKAGES}"
        run("nice", "debootstrap", "--variant=minbase", include, SUITE, root, _mirror(), log=CACHE / "debootstrap.log")
        _strip(root)
        container = _buildah("from", "scratch").strip()
        _buildah("add", "--quiet", container, root, "/")
        _buildah("commit", "--quiet", "--rm", container, BASE_IMAGE)
        shutil.rmtree(root)


def _strip(root: Path) -> None:
    """Remove what debootstrap copied from this machine, and what apt would download again anyway."""
    for copied in ("etc/resolv.conf", "etc/hostname", "etc/apt/sources.list"):
        (root / copied).unlink(missing_ok=True)
    for folder in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
        for found in sorted((root / folder).rglob("*"), reverse=True):
            found.rmdir() if found.is_dir() and not found.is_symlink() else found.unlink()


def _mirror() -> str:
    """Find the Debian mirror that this machine's own apt uses."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in (file for file in lists if file.is_file()):
        for address in re.findall(
            r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(\S+/debian)/?(?:\s|$)", file.read_text(), re.MULTILINE
        ):
            return str(address)
    raise OneboxError("no Debian mirror in /etc/apt; set TRAINMASTER_BASE_IMAGE to an image with Python 3.11")


def _build_pause() -> None:
    """Build the sandbox image, which serves tests as a small shell too: one static program."""
    with step(f"Building {PAUSE_IMAGE}"), tempfile.TemporaryDirectory() as context:
        shutil.copy2("/bin/busybox", context)
        dockerfile = REPOSITORY / "images" / "pause" / "Dockerfile"
        _buildah("build", "--quiet", "--layers", "--isolation", "chroot", "-f", dockerfile, "-t", PAUSE_IMAGE, context)
        _export(PAUSE_IMAGE)


def _build(image: str, dockerfile: str, *lent: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _buildah(
            "build", "--quiet", "--layers", "--isolation", "chroot", "--network", "host",
            "--build-arg", f"BASE_IMAGE={BASE_IMAGE}", "--build-arg", f"SHELL_IMAGE={PAUSE_IMAGE}",
            *(word for volume in _volumes(Path(scratch), *lent) for word in ("--volume", volume)),
            "--ignorefile", REPOSITORY / f"{dockerfile}.dockerignore",
            "--file", REPOSITORY / dockerfile, "--tag", image, REPOSITORY,
        )  # fmt: skip


def _volumes(scratch: Path, *more: Path) -> list[str]:
    """Lend the build what this machine's pip needs to reach its index: certificates, settings, local wheels."""
    listed = run("sh", "-c", "python3 -m pip config list || true")  # a machine without pip has no settings to lend
    settings = dict(re.findall(r"^(?:global|install|:env:)\.+([\w-]+)='(.*)'$", listed, re.MULTILINE))
    (scratch / "pip.conf").write_text("\n".join(["[global]", *(f"{key} = {settings[key]}" for key in settings)]))
    folders = [Path(folder) for folder in ("/etc/ssl/certs", settings.get("find-links", ""), *more) if folder]
    lent = [f"{folder}:{folder}:ro" for folder in folders if folder.is_dir()]
    return [f"{scratch / 'pip.conf'}:/etc/pip.conf:ro", *lent]


def _export(image: str) -> None:
    """Copy an image into the layout. Layers stay uncompressed: then one that is there already costs nothing."""
    storage = f"containers-storage:[overlay@{BUILDAH / 'root'}+{BUILDAH / 'run'}]{image}"
    run("nice", "skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", storage, f"oci:{LAYOUT}:{image}")


def _prune(unwanted: str | None = None) -> None:
    """Drop what former builds left: untagged images, and blobs that no image names; and this image."""
    _buildah("rmi", "--prune")
    left = [entry for entry in index() if entry.get("annotations", {}).get(TAG) not in (None, unwanted)]
    table = json.loads((LAYOUT / "index.json").read_text())
    (LAYOUT / "index.json").write_text(json.dumps({**table, "manifests": left}))
    used: set[str] = set()
    for entry in left:
        content = manifest(entry["digest"])
        used.update(part["digest"] for part in (entry, content["config"], *content["layers"]))
    for file in (LAYOUT / "blobs" / "sha256").iterdir():
        if f"sha256:{file.name}" not in used:
            file.unlink()
