"""A bundle of code: the same bytes wherever it is packed, nothing in it that leads out, checked at both ends."""

import gzip
import io
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from trainmaster.api.generate import ROOT
from trainmaster.wire import bundle
from trainmaster.wire.bundle import BundleEntry, BundleError

FILES = [
    BundleEntry("train.py", b"print('hello')\n"),
    BundleEntry("src/näh/模型.py", b""),
    BundleEntry("run.sh", b"#!/bin/sh\n", executable=True),
    BundleEntry("src/link.py", link="../train.py"),
    BundleEntry("latest", link="src"),
    BundleEntry(f"{'long/' * 60}file", b"x"),
]
# Of FILES, on whatever machine: a changed digest makes each job's code another one.
DIGEST = "3e620c4f3e6546af2173fc41cc3cc2360e46af1be655d40860b17baf6b8bb682"


def test_the_same_files_are_the_same_bytes_in_any_order() -> None:
    shuffled = random.Random(1).sample(FILES, len(FILES))  # noqa: S311
    assert bundle.pack(shuffled) == bundle.pack(FILES)


def test_the_bytes_are_those_of_every_version() -> None:
    assert bundle.digest(bundle.pack(FILES)) == DIGEST


def test_python_3_9_makes_and_reads_the_same(tmp_path: Path) -> None:
    python = shutil.which("python3.9") or sys.executable
    if subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        python = sys.executable  # a name without a Python behind it
    packed = tmp_path / "packed"
    packed.write_bytes(bundle.compress(bundle.pack(FILES)))
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'operator')!r})\n"
        "from pathlib import Path\nfrom trainmaster.wire import bundle\n"
        f"entries = bundle.read(Path({str(packed)!r}).read_bytes(), {DIGEST!r})\n"
        f"bundle.write(entries, Path({str(tmp_path / 'out')!r}))\n"
        "print(bundle.digest(bundle.pack(entries)))\n"
    )
    told = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == DIGEST
    assert (tmp_path / "out" / "latest" / "link.py").read_bytes() == FILES[0].data


def test_there_and_back(tmp_path: Path) -> None:
    archive = bundle.pack(FILES)
    packed = b"".join(bundle.split(bundle.compress(archive)))
    entries = bundle.read(packed, bundle.digest(archive))
    assert sorted(entries, key=str) == sorted(FILES, key=str)
    bundle.write(entries, tmp_path / "out")
    assert (tmp_path / "out" / "src" / "näh" / "模型.py").read_bytes() == b""
    assert (tmp_path / "out" / "src" / "link.py").readlink() == Path("../train.py")
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o777 == 0o755
    with pytest.raises(FileExistsError):
        bundle.write(entries, tmp_path / "out")


def test_parts_fit_into_config_maps() -> None:
    packed = random.Random(1).randbytes(bundle.MOST_BYTES)  # noqa: S311
    parts = bundle.split(packed)
    assert b"".join(parts) == packed
    assert max(map(len, parts)) <= bundle.PART_BYTES
    assert len(parts) <= 16, "of spec.training.code.bundle.configMaps"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (BundleEntry("../out"), "no path inside"),
        (BundleEntry("/etc/passwd"), "no path inside"),
        (BundleEntry("a//b"), "no path inside"),
        (BundleEntry("./a"), "no path inside"),
        (BundleEntry("a/../../b"), "no path inside"),
        (BundleEntry(""), "no path inside"),
        (BundleEntry("a\0b"), "no path inside"),
        (BundleEntry("a\udc80"), "not UTF-8"),
        (BundleEntry("a" * 300), "too long"),
        (BundleEntry("l", link="/etc/passwd"), "leads out of the folder, to /etc/passwd"),
        (BundleEntry("l", link="../x"), "leads out"),
        (BundleEntry("d/l", link="../../x"), "leads out"),
        (BundleEntry("d/l", link="e/../../x"), "leads out"),
        (BundleEntry("l", link=""), "leads out"),
        (BundleEntry("train.py"), "comes twice"),
        (BundleEntry("train.py/more"), "lies below train.py, which is no folder"),
        (BundleEntry("latest/more"), "lies below latest, which is no folder"),
    ],
)
def test_what_leads_out_is_refused_at_both_ends(entry: BundleEntry, why: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=why):
        bundle.pack([*FILES, entry])
    with pytest.raises(BundleError, match=why):
        bundle.write([*FILES, entry], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def archived(**fields: object) -> bytes:
    """An archive with one member that we would not make."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("thing")
        for name, value in fields.items():
            setattr(info, name, value)
        archive.addfile(info, io.BytesIO(b"\0" * info.size))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (archived(mode=0o4755), "has the mode 4755"),
        (archived(mode=0o2755), "has the mode 2755"),
        (archived(type=tarfile.CHRTYPE), "neither a file nor a symbolic link"),
        (archived(type=tarfile.BLKTYPE), "neither a file"),
        (archived(type=tarfile.FIFOTYPE), "neither a file"),
        (archived(type=tarfile.LNKTYPE, linkname="/etc/passwd"), "neither a file"),
        (archived(type=tarfile.DIRTYPE), "neither a file"),
        (archived(type=tarfile.SYMTYPE, linkname="../../etc"), "leads out"),
        (archived(name="../../etc/cron.d/x"), "no path inside"),
        (archived(name="/etc/x"), "no path inside"),
        (b"no archive" * 100, "no tar archive"),
    ],
)
def test_an_archive_that_we_would_not_make_is_refused(archive: bytes, why: str) -> None:
    with pytest.raises(BundleError, match=why):
        bundle.read(gzip.compress(archive), bundle.digest(archive))


def test_damaged_and_exchanged_and_endless_bundles_are_refused() -> None:
    archive = bundle.pack(FILES)
    packed = bundle.compress(archive)
    with pytest.raises(BundleError, match="it is not what was sent"):
        bundle.read(bundle.compress(bundle.pack(FILES[:1])), bundle.digest(archive))
    for broken in (b"", packed[:-9], packed[:40], b"x" + packed):
        with pytest.raises(BundleError, match=r"damaged|not what was sent"):
            bundle.read(broken, bundle.digest(archive))
    with pytest.raises(BundleError, match="more than 128 MiB"):
        bundle.read(gzip.compress(bytes(bundle.MOST_UNPACKED + 1), 1), "")


def test_too_many_files_are_refused() -> None:
    with pytest.raises(BundleError, match="10001 files"):
        bundle.pack([BundleEntry(f"f{number}") for number in range(bundle.MOST_FILES + 1)])
