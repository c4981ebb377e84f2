"""The folders of tests mirror the packages, so that the tests of a package are found by its path."""

from pathlib import Path, PurePath

from trainmaster.api.generate import ROOT

PACKAGES = {"trainer": ROOT / "trainer" / "trainmaster_trainer", "onebox": ROOT / "tools" / "onebox",
            "charts": ROOT / "charts", "examples": ROOT / "examples"}  # fmt: skip
OF_MORE_THAN_ONE = {"frameworks", "gpu", "house", "platforms", "simulation", "xla"}
"""They test the loop, whole runs or this repository, or need an environment of their own (docs/architecture.md)."""


def test_a_folder_of_tests_has_the_name_of_the_package_that_it_tests() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert len(folders) > 20
    assert [str(folder) for folder in sorted(folders) if not _package(folder).is_dir()] == []


def _package(folder: PurePath) -> Path:
    """Return where the package lies that the tests of a folder test."""
    first, *rest = folder.parts
    if first in OF_MORE_THAN_ONE:
        return ROOT
    return PACKAGES.get(first, ROOT / "operator" / "trainmaster" / first).joinpath(*rest)


def test_each_folder_of_tests_is_described() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/*.py")}
    assert len(folders) > 15
    assert [name for name in folders if f"`tests/{name}`" not in page] == []
