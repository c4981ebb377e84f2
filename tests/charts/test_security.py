"""docs/security.md tells the truth: its tests exist, its rights are the chart's; and nothing read back can run."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_rights import ISOLATING, RIGHTS
from .tools import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
SOURCES = sorted(path for part in ("operator", "trainer") for path in (ROOT / part).rglob("*.py"))
DANGEROUS_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
DANGEROUS_CALLS = {"eval", "exec", "compile"}
# torch.save and torch.load pickle; so do the collectives of objects, and the metadata of torch.distributed.checkpoint.
DANGEROUS_NAMES = {
    *("torch.load", "torch.save", "numpy.load", "np.load", "os.system", "os.popen", "yaml.load"),
    *(f"dist.{name}_object" for name in ("all_gather", "gather")),
    *(f"dist.{name}_object_list" for name in ("broadcast", "scatter", "send", "recv")),
}

# Runs the user's own script, as `python script.py` would: that is what a job is for.
ALLOWED = {("trainer/trainmaster_trainer/agent/main_module.py", call) for call in ("exec", "compile")}
# A rank reads what its own data workers, which it forked, put into a pipe that no one else has, as torch's loader does.
ALLOWED.add(("trainer/trainmaster_trainer/data_workers.py", "pickle"))
# It compares what marshal writes of two values, and reads nothing.
ALLOWED.add(("trainer/trainmaster_trainer/scripts/signs.py", "marshal"))
# Tensors alone, for users who ask for that format: it is written, and never read by us.
ALLOWED.add(("trainer/trainmaster_trainer/export_model.py", "torch.save"))


def _rows(title: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", _rows("Threats"), ids=lambda row: row[0][:40])
def test_every_threat_has_a_test_that_exists(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)`", row[2])
    assert named, f"no test for: {row[0]}"
    for name in named:
        path, _, function = name.partition("::")
        assert (ROOT / path).exists(), name
        assert not function or f"def {function}(" in (ROOT / path).read_text(), name


_OWN_LEASE = "leases: the one named trainmaster in its own namespace"
_IF_ASKED = ", with `jobNetworkPolicy.enabled` only"


def test_the_page_lists_the_rights_of_the_chart() -> None:
    listed = {
        ("" if group == "core" else group, resource, verb)
        for group, resource, verbs in _rows("What the operator may do")
        for verb in verbs.split(", ")
    }
    lease = {("coordination.k8s.io", _OWN_LEASE, verb) for verb in ("get", "update")}
    assert listed == RIGHTS | lease | {(group, f"{resource}{_IF_ASKED}", verb) for group, resource, verb in ISOLATING}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_read_that_can_run(path: Path) -> None:
    """No code comes in by a checkpoint, a message or a file: by import of what could, or by call of it."""
    place = str(path.relative_to(ROOT))
    assert {(place, danger) for danger in _dangers(ast.parse(path.read_text()))} - ALLOWED == set()


def _dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from ({f"{node.value.id}.{node.attr}"} & DANGEROUS_NAMES)
        elif isinstance(node, ast.Call):
            yield from ({ast.unparse(node.func)} & DANGEROUS_CALLS)
            yield from ("shell=True" for word in node.keywords if word.arg == "shell")
        yield from ({module.split(".", 1)[0] for module in modules} & DANGEROUS_MODULES)
        yield from (module for module in modules if module.startswith("torch.distributed.checkpoint"))
