"""Packages in a replica by a real pip, from a folder of wheels and from an index; and why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainmaster.wire.bundle import BundleError
from trainmaster.wire.sources import PackageSource, SourceUnavailableError
from trainmaster_trainer.agent import bundled, installing

from tests.trainer.agent import wheels

NONE = "none-of-this-name"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels: one that needs another, one that needs torch, which is here, and ones that do not fit."""
    folder = tmp_path_factory.mktemp("wheels")
    wheels.wheel(folder, "bright", "1.0", needs="dim>=2")
    wheels.wheel(folder, "dim", "2.1")
    wheels.wheel(folder, "uses_torch", "1.0", needs="torch")
    wheels.wheel(folder, "foreign", "1.0", tag="cp27-cp27m-win32")
    wheels.wheel(folder, "newer", "1.0", python=">=4.0")
    wheels.wheel(folder, "quarrels", "1.0", needs="dim<2")
    wheels.source(folder, "unbuilt", "1.0")
    return folder


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip obeys those of this machine otherwise."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in [name for name in os.environ if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"]:
        monkeypatch.delenv(name)


def install(tmp_path: Path, *names: str, shelf: Path | None, requirements: str | None = None) -> Path:
    folder = tmp_path / "packages"
    packages = PackageSource(names, requirements, str(shelf) if shelf else None)
    installing.install(packages, folder, tmp_path)
    return folder


def test_packages_lie_above_those_that_are_here(
    tmp_path: Path, shelf: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))  # of the user's: it would bypass the folder
    (tmp_path / "requirements.txt").write_text("uses_torch\n")
    folder = install(tmp_path, "bright==1.0", shelf=shelf, requirements="requirements.txt")
    installed = {path.name for path in bundled.modules_of(folder).glob("*.dist-info")}
    assert installed == {"bright-1.0.dist-info", "dim-2.1.dist-info", "uses_torch-1.0.dist-info"}, "and no second torch"
    assert "pip: Successfully installed bright-1.0 dim-2.1 uses_torch-1.0" in capfd.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/of/the/user"}
    bundled._use_packages(environment, folder)
    program = "import bright, dim, uses_torch, torch, sys; print(bright.VERSION, dim.__file__, sys.path[-1])"
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"1.0 {folder}")
    program_of_it = subprocess.run(["bright"], env=environment, capture_output=True, text=True, check=True)
    assert program_of_it.stdout == "1.0\n"


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("bright==9", BundleError, "there is no such package or version: .*bright==9"),
        (f"{NONE}==1", BundleError, f"there is no such package or version: .*{NONE}==1"),
        ("foreign==1.0", BundleError, "there is no such package or version|made for another Python"),
        ("newer==1.0", BundleError, "a package is made for another Python"),
        ("unbuilt==1.0", BundleError, "a package cannot be built here"),
    ],
)
def test_what_cannot_be_installed_is_said(
    tmp_path: Path, shelf: Path, name: str, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        install(tmp_path, name, shelf=shelf)


def test_packages_that_quarrel_are_told(tmp_path: Path, shelf: Path) -> None:
    with pytest.raises(BundleError, match=r"packages want different versions of another"):
        install(tmp_path, "bright==1.0", "quarrels==1.0", shelf=shelf)


def test_files_that_are_not_there_are_named(tmp_path: Path, shelf: Path) -> None:
    with pytest.raises(BundleError, match=r"there is no file requirements.txt in the code"):
        install(tmp_path, shelf=shelf, requirements="requirements.txt")
    with pytest.raises(BundleError, match=r"there is no folder .*nowhere with wheels"):
        install(tmp_path, "bright==1.0", shelf=tmp_path / "nowhere")


def test_an_index_with_a_password_that_nobody_sees(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with wheels.index(shelf, password="s3cret") as port:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://me:s3cret@127.0.0.1:{port}/simple")
        install(tmp_path, "bright==1.0", shelf=None)
        said = capfd.readouterr().err
        assert "Successfully installed bright-1.0 dim-2.1" in said
        monkeypatch.setenv("PIP_INDEX_URL", f"http://me:wr0ng@127.0.0.1:{port}/simple")
        with pytest.raises(BundleError, match=r"the index wants other credentials") as refused:
            install(tmp_path, "bright==1.0", shelf=None)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://me:s3cret@127.0.0.1:{port}/simple")
        with pytest.raises(BundleError, match=r"no such package or version"):
            install(tmp_path, f"{NONE}==1", shelf=None)
        said += capfd.readouterr().err + str(refused.value)
    assert "s3cret" not in said
    assert "wr0ng" not in said


def test_an_index_that_is_away_may_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:s3cret@127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SourceUnavailableError, match=r"the index cannot be reached") as away:
        install(tmp_path, "bright==1.0", shelf=None)
    assert "s3cret" not in str(away.value)
