"""`make release` makes files that are whole: a wheel, a chart, bills of materials that name what the locks name."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import yaml

from .tools import ROOT, binary, helm


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
    _check_the_plugin(folder, tmp_path)
    for lock in ("operator", "trainer"):
        (bill,) = folder.glob(f"trainmaster-{lock}-*.cdx.json")
        components = {(one["name"], one["version"]) for one in json.loads(bill.read_text())["components"]}
        pinned = re.findall(
            r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / "requirements" / f"{lock}.lock").read_text(), re.MULTILINE
        )
        assert components == set(pinned)


def _check_the_plugin(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What krew would install: the archive that the manifest names, whose program makes its environment once."""
    manifest = yaml.safe_load((folder / "trainmaster.krew.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    archive = folder / platform["uri"].rpartition("/")[2]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    place = tmp_path / "plugin"
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    assert (place / "operator.lock").read_text() == (ROOT / "requirements" / "operator.lock").read_text()
    (place / "operator.lock").write_text("")  # the packages are those of this environment: nothing is fetched
    installed = next(path for path in sys.path if path.endswith("site-packages"))
    environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "XDG_DATA_HOME": str(tmp_path / "data")}
    environment |= {"PYTHONPATH": installed, "PIP_NO_INDEX": "1", "TRAINMASTER_PYTHON": sys.executable}
    for _ in range(2):
        run = [str(binary("kubectl")), "trainmaster", "--version"]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"trainmaster {manifest['spec']['version'].removeprefix('v')}"
    assert "making its environment" not in done.stderr, "once"
    old = subprocess.run(
        [place / "kubectl-trainmaster"],
        env={**environment, "XDG_DATA_HOME": str(tmp_path / "other"), "TRAINMASTER_PYTHON": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (old.returncode, old.stdout) == (2, "")
    assert "needs Python 3.11 or newer" in old.stderr
