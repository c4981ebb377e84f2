"""Installs the Debian packages that a node needs; `cluster.py` calls it before it builds images."""

import os
import shutil
from pathlib import Path

from tools.onebox.shell import OneboxError, run, step, succeeds

PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "socat",
    "buildah",
    "skopeo",
    "debootstrap",
    "busybox-static",
    "iproute2",
    "nftables",
    "openssl",
)


def ensure() -> None:
    """Install what is missing, or say the line that does it."""
    missing = [package for package in PACKAGES if not _installed(package)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise OneboxError(f"install these by your system's own means (Debian's names): {' '.join(missing)}")
    if os.geteuid() != 0:
        raise OneboxError(f"run: sudo apt-get install --no-install-recommends {' '.join(missing)}")
    with step(f"Installing {' '.join(missing)}"):
        _install(missing)


def _installed(package: str) -> bool:
    return succeeds(
        "sh", "-c", f"dpkg-query --show --showformat='${{db:Status-Status}}' {package} | grep -qx installed"
    )


def _install(missing: list[str]) -> None:
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        run("apt-get", "update", "--quiet")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ("nice", "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing)
    try:
        run(*command, environment=environment)
    except OneboxError:
        # The lists may name versions that the mirror no longer has: once more with fresh ones.
        run("apt-get", "update", "--quiet")
        run(*command, environment=environment)
