"""One meaning per word: a class name and a file's name exist once, and no function's name says nothing."""

import ast
from collections import Counter
from pathlib import Path

from trainmaster.api.generate import ROOT
from trainmaster.wire.strategies import STRATEGIES, module_of

SAY_NOTHING = frozenset({"found", "told", "of", "one", "_found", "_told", "_of", "_one"})
# Where a user imports each adapter from says whose report it is.
SAME_CLASSES = frozenset({"Report"})
# Python gives the first two their names; a strategy's page is called as the strategy is.
SAME_FILES = frozenset({"__init__", "__main__"} | {module_of(name) for name in STRATEGIES})


def _files() -> list[Path]:
    return [path for folder in ("operator", "trainer") for path in sorted((ROOT / folder).rglob("*.py"))]


def _more_than_once(names: list[str], allowed: frozenset[str]) -> dict[str, int]:
    return {name: count for name, count in Counter(names).items() if count > 1 and name not in allowed}


def test_a_class_name_exists_once() -> None:
    trees = [ast.parse(path.read_text()) for path in _files()]
    names = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(names) > 500
    assert _more_than_once(names, SAME_CLASSES) == {}


def test_a_files_name_exists_once() -> None:
    assert _more_than_once([path.stem for path in _files()], SAME_FILES) == {}


def test_a_functions_name_says_what_it_does() -> None:
    empty = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in _files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in SAY_NOTHING
    ]
    assert empty == []
