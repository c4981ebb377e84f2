"""`make release` makes files that are whole: a wheel, a chart, bills of materials that name what the locks name."""

import hashlib
import json
import pathlib
import re
import subprocess
import sys

from .tools import ROOT, helm


def test_a_release_is_whole(tmp_path: pathlib.Path) -> None:
    """Without images, which are the one-machine cluster's and are built by its tests."""
    folder = tmp_path / "dist"
    command = [sys.executable, "-m", "tools.release", "--without-images", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = (line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    assert set(sums) == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    (chart,) = folder.glob("*.tgz")
    assert helm("lint", "--strict", str(chart)).returncode == 0
    for lock in ("operator", "trainer"):
        (bill,) = folder.glob(f"trainmaster-{lock}-*.cdx.json")
        components = {(one["name"], one["version"]) for one in json.loads(bill.read_text())["components"]}
        pinned = re.findall(
            r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / "requirements" / f"{lock}.lock").read_text(), re.MULTILINE
        )
        assert components == set(pinned)
