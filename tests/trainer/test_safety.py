"""The trainer reads no pickle, imports only what it may, and is light to look at without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import trainmaster_trainer

ROOT = Path(trainmaster_trainer.__file__).parent
# A rank reads what its own data workers, which it forked, put into a pipe that no one else has, as torch's loader does.
OF_ITS_CHILDREN = ROOT / "data_workers.py"
FILES = [path for path in sorted(ROOT.rglob("*.py")) if "agent" not in path.relative_to(ROOT).parts]
MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
# torch.save and torch.load pickle; so do the object collectives and DCP's metadata.
NAMES = {
    ("torch", "load"),
    ("torch", "save"),
    ("np", "load"),
    ("dist", "all_gather_object"),
    ("dist", "broadcast_object_list"),
    ("dist", "gather_object"),
    ("dist", "scatter_object_list"),
    ("dist", "send_object_list"),
    ("dist", "recv_object_list"),
}

# Tensors alone, for users who ask for that format: it is written, and never read by us.
WRITTEN = {"export_model.py": {("torch", "save")}}
# It compares what marshal writes of two values, and reads nothing.
COMPARED = {"signs.py": {"marshal"}}


@pytest.mark.parametrize("path", [path for path in FILES if path != OF_ITS_CHILDREN], ids=lambda path: path.name)
def test_no_pickle(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        for module in imported(node):
            assert module.split(".")[0] not in MODULES - COMPARED.get(path.name, set()), module
            assert not module.startswith("torch.distributed.checkpoint"), module
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in NAMES - WRITTEN.get(path.name, set())


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
