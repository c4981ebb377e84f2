"""The trainer imports only what it may, and is light to look at without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import trainmaster_trainer

ROOT = Path(trainmaster_trainer.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if "agent" not in path.relative_to(ROOT).parts]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_nothing_of_the_operator_but_the_wire(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        for module in imported(node):
            assert not module.startswith("trainmaster.") or module.startswith("trainmaster.wire"), module


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def test_the_package_alone_does_not_import_torch() -> None:
    code = "import sys, trainmaster_trainer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
