"""The wheel carries the chart, the CRD and the examples, and its command works outside of a checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

from trainmaster.api.generate import ROOT


def test_the_wheel_works_outside_of_a_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    (data,) = unpacked.glob("trainmaster-*.data/data/share/trainmaster")
    for carried in ("charts/trainmaster", "crds", "examples"):
        here = {
            path.relative_to(ROOT / carried) for path in (ROOT / carried).rglob("*") if "__pycache__" not in path.parts
        }
        assert {path.relative_to(data / carried) for path in (data / carried).rglob("*")} == here
    assert list(unpacked.glob("trainmaster-*.dist-info/licenses/LICENSE"))
    assert (unpacked / "trainmaster_trainer/tasks/data/digits.zlib").exists()
    # -S keeps the checkout's editable install out; the third-party packages are put back by name.
    installed = next(path for path in sys.path if path.endswith("site-packages"))
    program = (
        f"import sys; sys.path += [{str(unpacked)!r}, {installed!r}]; from trainmaster.cli.main import main; "
        f"sys.exit(main(['check', {str(data / 'examples/digits/job.yaml')!r}]))"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
