"""Mounts of the cluster: found by where they are, undone from the deepest upwards."""

from pathlib import Path

from tools.onebox.shell import succeeds


def below(*folders: Path) -> list[Path]:
    """List the mount points in or under some folders, the deepest first."""
    prefixes = tuple(f"{folder}/" for folder in folders)
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = {line.split()[4].replace(r"\040", " ") for line in lines}
    return sorted((Path(point) for point in points if f"{point}/".startswith(prefixes)), reverse=True)


def unmount_below(*folders: Path) -> None:
    """Undo every mount in or under some folders; one that is still busy goes when its last user does."""
    while points := below(*folders):
        undone = [succeeds("umount", point) or succeeds("umount", "--lazy", point) for point in points]
        if not any(undone):
            return  # what cannot be undone is reported as left over
