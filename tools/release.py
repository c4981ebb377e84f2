"""Make what is given to others, in dist/: wheel, chart, images, kubectl's plugin, bills of materials, checksums.

The images are those that `make images` builds, which needs root, as OCI archives: `skopeo copy oci-archive:FILE docker://...`
pushes one. The chart is pushed by `helm push`.
"""

import argparse
import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tools.onebox import binaries, images
from tools.onebox.paths import CACHE, LAYOUT, REPOSITORY

# Programs of the environment that `make release` sets up: requirements/release.lock.
BILL_OF_MATERIALS = CACHE / "release" / "bin" / "cyclonedx-py"
KREW = REPOSITORY / "deploy" / "krew"
LOCKS = ("operator", "trainer")


def main() -> None:
    """Make everything anew."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "dist", help="the folder (default: dist)")
    parser.add_argument("--url", default="https://example.com/trainmaster", help="where the files will be, for krew")
    parser.add_argument("--without-images", action="store_true", help="leave out the images, which need root")
    options = parser.parse_args()
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    _wheel(options.output)
    _run(binaries.path("helm"), "package", REPOSITORY / "charts" / "trainmaster", "--destination", options.output)
    for lock in LOCKS:
        file = options.output / f"trainmaster-{lock}-{version}.cdx.json"
        requirements = REPOSITORY / "requirements" / f"{lock}.lock"
        _run(BILL_OF_MATERIALS, "requirements", requirements, "--of", "JSON", "--output-file", file)
    _plugin(options.output, version, options.url.rstrip("/"))
    if not options.without_images:
        _images(options.output, version)
    _checksums(options.output)
    sys.stdout.write("".join(f"{path}\n" for path in sorted(options.output.iterdir())))


def _wheel(folder: Path) -> None:
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)


def _plugin(folder: Path, version: str, url: str) -> None:
    """Write the archive of the plugin, the same bytes for the same content, and its manifest."""
    archive = folder / f"kubectl-trainmaster-{version}.tar.gz"
    launcher = (KREW / "kubectl-trainmaster").read_text().replace("@VERSION@", version).encode()
    wheel = folder / f"trainmaster-{version}-py3-none-any.whl"
    members = {"kubectl-trainmaster": launcher, wheel.name: wheel.read_bytes()}
    members |= {
        path.name: path.read_bytes() for path in (REPOSITORY / "requirements/operator.lock", REPOSITORY / "LICENSE")
    }
    with gzip.GzipFile(archive, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(members.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if content is launcher else 0o644
            tar.addfile(member, io.BytesIO(content))
    known = {"VERSION": version, "URL": url, "SHA256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    manifest = (KREW / "trainmaster.yaml").read_text()
    for word, value in known.items():
        manifest = manifest.replace(f"@{word}@", value)
    (folder / "trainmaster.krew.yaml").write_text(manifest)


def _images(folder: Path, version: str) -> None:
    images.build()
    for image in images.DOCKERFILES:
        name = image.rpartition("/")[2].partition(":")[0]
        file = folder / f"trainmaster-{name}-{version}.oci.tar"
        _run("skopeo", "copy", "--quiet", f"oci:{LAYOUT}:{image}", f"oci-archive:{file}:trainmaster/{name}:{version}")


def _checksums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))


def _run(*words: str | Path) -> None:
    """Run a program; its output is shown where it fails."""
    done = subprocess.run([str(word) for word in words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{Path(words[0]).name} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
