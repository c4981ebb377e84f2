"""What keeps the house readable: bounded files and functions, a purpose on top of every module, no shadowed module."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster.api.generate import ROOT

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 50
# What a body of so many lines does is read where it is called, unless its name is handed over (decision 0215).
LINES_OF_A_SHORT_HELPER = 4
MOST_SHORT_HELPERS = 0.075  # of all functions


def python_files() -> list[Path]:
    """Every Python file that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in (ROOT / name for name in listed.stdout.split()) if path.exists()]


FILES = python_files()
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_file_is_too_long() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in FILES
        for node in functions(path)
    }
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES_OF_A_FUNCTION} == {}


def short_helpers(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the private functions of a file that one place uses, and whose bodies are short."""
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    used.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
    defined = Counter(node.name for node in nodes if isinstance(node, FUNCTION))
    private = [node for node in nodes if isinstance(node, FUNCTION) and re.match("_[^_]", node.name)]
    for node in private:
        if used[node.name] == 1 == defined[node.name] and lines_of_body(node) <= LINES_OF_A_SHORT_HELPER:
            yield f"{node.name}:{node.lineno}"


def lines_of_body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_few_helpers_are_short_and_used_once() -> None:
    product = [path for path in FILES if path.relative_to(ROOT).parts[0] in ("operator", "trainer")]
    nodes = {path: [*ast.walk(ast.parse(path.read_text()))] for path in product}
    short = [f"{path.relative_to(ROOT)} {helper}" for path, inside in nodes.items() for helper in short_helpers(inside)]
    every = sum(isinstance(node, FUNCTION) for inside in nodes.values() for node in inside)
    assert every > 4000
    assert len(short) <= MOST_SHORT_HELPERS * every, short


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())) or not path.read_text().strip()


def test_operator_is_no_package() -> None:
    """`operator/__init__.py` would shadow the standard library's operator and break Python itself."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "trainer" / "__init__.py").exists()


def test_the_readme_names_what_is_there() -> None:
    named = re.findall(r"^\| ((?:`[\w./]+`[ ,]*)+)\|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    paths = [path for cell in named for path in re.findall(r"`([\w./]+)`", cell)]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
