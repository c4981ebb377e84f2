"""Find which variables a program sets for itself, by reading its source before it runs.

`os.environ["OMP_NUM_THREADS"] = "4"` above `import torch` works in a new interpreter. In a process where torch has been
imported already it would do nothing, so `new_interpreter` has to know of it beforehand.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

_MOST_FILES = 100
_MOST_BYTES = 1 << 20
_IMPORT = re.compile(
    rb"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+([\w, \t]*))", re.MULTILINE
)
_TOUCHES = re.compile(rb"\benviron\b|\bputenv\b")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Assignment:
    """Assignment is a place where a variable is set, or may be. `value` is None where it is not written there."""

    name: str
    value: Optional[str]
    where: str
    only_if_unset: bool = False


def made_by(entries: Iterable[Path], folders: Sequence[str]) -> Iterator[Assignment]:
    """Yield what the files `entries` set, and the modules that they import from `folders`."""
    waiting: List[Path] = [*entries]
    seen: Set[Path] = set()
    there = {folder: _first_parts(folder) for folder in folders}
    looked_for: Set[str] = set()  # a program of many files imports the same everywhere, and a restart waits for this
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        source = _read(path)
        if _TOUCHES.search(source):
            yield from _in_source(source, path.name)
        for name, places in _imported(source, path):
            if places:
                waiting += modules(name, places)
            elif name not in looked_for:
                looked_for.add(name)
                waiting += modules(name, [folder for folder in folders if name.partition(".")[0] in there[folder]])


def modules(name: str, folders: Iterable[str]) -> List[Path]:
    """Return the files that are run where the module `name` is imported from one of these folders."""
    found: List[Path] = []
    for folder in folders:
        place = folder
        for part in name.split("."):
            place = f"{place}/{part}"
            found += [Path(file) for file in (f"{place}/__init__.py", f"{place}.py") if os.path.isfile(file)]  # noqa: PTH113
    return found


def _first_parts(folder: str) -> Set[str]:
    """Return the first part of each name that can be imported from a folder."""
    try:
        return {name.partition(".")[0] for name in os.listdir(folder)}  # noqa: PTH208 names are all that is wanted
    except OSError:
        return set()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""


def _imported(source: bytes, path: Path) -> Iterator[Tuple[str, List[str]]]:
    """Yield the names of modules that a source imports, and in which folders alone each of them is."""
    for match in _IMPORT.finditer(source):
        plain, dots, origin, members = (part.decode() if part else "" for part in match.groups())
        names = [one.split()[0] for one in (plain or members).split(",") if one.strip()]
        places = [str(path.parents[min(len(dots), len(path.parents)) - 1])] if dots else []
        if origin:
            yield origin, places
            names = [f"{origin}.{name}" for name in names]
        for name in names:
            yield name, places


def _in_source(source: bytes, where: str) -> Iterator[Assignment]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        made = _in_node(node)
        if made is None:  # the name is computed, so it may be any that is written somewhere in this file
            made = dict.fromkeys(_texts(tree))
        for name, value in made.items():
            yield Assignment(name, value, where, only_if_unset=_is_call(node, "setdefault"))


def _in_node(node: ast.AST) -> Optional[Dict[str, Optional[str]]]:
    """Return the names and values that are set here; None where the names cannot be read off."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        keys = [one.slice for one in node.targets if isinstance(one, ast.Subscript) and _is_environ(one.value)]
        return _named(keys, node.value if isinstance(node, ast.Assign) else None)
    if isinstance(node, ast.AugAssign) and _is_environ(node.target):
        return _of_mapping(node.value)
    return _in_call(node) if isinstance(node, ast.Call) else {}


def _in_call(node: ast.Call) -> Optional[Dict[str, Optional[str]]]:
    if _is_call(node, "setdefault", "pop", "__setitem__", "putenv"):
        return _named(node.args[:1], node.args[1] if len(node.args) > 1 else None)
    if not _is_call(node, "update"):
        return {}
    made: Dict[str, Optional[str]] = {word.arg: _text(word.value) for word in node.keywords if word.arg}
    for argument in node.args:
        more = _of_mapping(argument)
        if more is None:
            return None
        made.update(more)
    return made


def _is_call(node: ast.AST, *methods: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in methods:
        return False
    return node.func.attr == "putenv" or _is_environ(node.func.value)


def _is_environ(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"


def _named(keys: Sequence[ast.AST], value: Optional[ast.AST]) -> Optional[Dict[str, Optional[str]]]:
    names = [_text(key) for key in keys]
    return None if None in names else {name: _text(value) for name in names if name is not None}


def _of_mapping(node: ast.AST) -> Optional[Dict[str, Optional[str]]]:
    if not isinstance(node, ast.Dict):
        return None
    values = [_text(value) for value in node.values]
    made = {_text(key): values[place] for place, key in enumerate(node.keys)}
    return None if None in made else {name: value for name, value in made.items() if name is not None}


def _text(node: Optional[ast.AST]) -> Optional[str]:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the words that could be names of variables."""
    for node in ast.walk(tree):
        text = node.arg if isinstance(node, ast.keyword) else _text(node)
        if text and _NAME.fullmatch(text):
            yield text
