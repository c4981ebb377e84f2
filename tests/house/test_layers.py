"""Imports run one way (`.importlinter`), and never in a circle: what is below can be read without what is above."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest
from trainmaster.api.generate import ROOT

PACKAGES = {"trainmaster": ROOT / "operator", "trainmaster_trainer": ROOT / "trainer", "tests": ROOT, "tools": ROOT}


def test_imports_run_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_in_a_circle(package: str) -> None:
    modules = {_name(path, PACKAGES[package]): path for path in (PACKAGES[package] / package).rglob("*.py")}
    graph = {name: _imports(path, name, set(modules)) for name, path in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imports(path: Path, name: str, modules: set[str]) -> set[str]:
    """What it imports when it is imported; what is imported in a function, or for types only, does not count."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & modules or {node.module or ""}
    return found & modules - {name}
