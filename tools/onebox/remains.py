"""Finds, and removes, whatever a cluster may leave behind on the machine.

`Cluster.down` cleans by it and the tests' teardown asserts by it. It looks at the kernel and the file system, not at
our records: so it is right after a crash, a reboot, or a checkout that was deleted while its cluster ran.
"""

import contextlib
import shutil
from pathlib import Path

from tools.onebox import cgroups, mounts, network, node
from tools.onebox.paths import ALL_NODES, CACHE, NODES, OWNER, RUN, STATE

# Two folders that are fixed in kubelet and in the network plugins' library.
LOG_LINKS = Path("/var/log/containers")
NETWORK_RESULTS = Path("/var/lib/cni/results")


def leftovers() -> list[str]:
    """Describe everything of a cluster that is on the machine; empty after `down`."""
    return [
        *(f"process {pid}: {_command(pid)}" for pid in sorted(cgroups.members())),
        *(f"control group {folder}" for folder in cgroups.existing()),
        *(f"mount {point}" for point in mounts.below(CACHE, RUN, STATE)),
        *(f"interface {name}" for name in network.interfaces()),
        *(f"packet filter table {family} {table}" for family, table in network.tables()),
        *(f"file {file}" for file in _files()),
    ]


def clean() -> None:
    """Remove all of it: processes first, then what they held."""
    for name in ALL_NODES:
        node.remove(name)
    cgroups.kill()
    mounts.unmount_below(CACHE, RUN, STATE)
    network.down()
    cgroups.remove()
    for file in _files():
        _delete(file)


def _files() -> list[Path]:
    """List files outside the checkout; a log link is ours if it leads to a pod log of ours, or did."""
    links = [link for link in LOG_LINKS.glob("*.log") if link.is_symlink() and _is_ours(link.readlink())]
    results = [file for file in NETWORK_RESULTS.glob("*") if str(RUN) in file.read_text()]
    return [file for file in (*links, *results, RUN, NODES, OWNER) if file.is_symlink() or file.exists()]


def _is_ours(target: Path) -> bool:
    return target.is_relative_to(STATE) or (not target.exists() and ".cluster" in target.parts)


def _delete(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file, ignore_errors=True)
    else:
        file.unlink(missing_ok=True)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    return "(ended meanwhile)"
