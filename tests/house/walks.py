"""Count the functions that a reader of one function follows: all that it may call, as mypy resolves names and types.

Counted is what has a body: no generated `__init__`, and no method of a protocol. What is only referred to counts as
well (the target of a thread, a property). A call through a protocol or of an overridden method ends at what its static
type names, unless `reaches` says which implementations to go on with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mypy import build, nodes
from mypy.find_sources import create_source_list
from mypy.fscache import FileSystemCache
from mypy.options import Options
from mypy.types import CallableType, Instance, TupleType, Type, TypeType, TypeVarType, UnionType, get_proper_type

OURS = ("trainmaster.", "trainmaster_trainer.")
_OTHERS = ("torch", "numpy", "pydantic", "aiohttp", "yaml", "safetensors", "fsspec", "aiobotocore", "botocore")
_LINKS = {  # members of mypy's nodes that lead elsewhere
    *("node", "info", "type", "names", "defn", "analyzed", "mro", "typeinfo", "metaclass", "as_type"),
    *("original_def", "unanalyzed_items", "expanded", "impl", "inferred_types", "method_types", "analyzed_items"),
}
Functions = dict[str, nodes.FuncDef]


class Walks:
    """Walks holds the functions of the code that `sources` import, and which of them each may call."""

    def __init__(self, root: Path, *sources: str) -> None:
        before = Path.cwd()
        os.chdir(root)
        try:
            options = Options()
            options.incremental, options.cache_dir = False, os.devnull
            options.export_types = options.preserve_asts = options.ignore_missing_imports = True
            options.mypy_path = ["operator", "trainer"]
            options.explicit_package_bases = options.namespace_packages = True
            for name in _OTHERS:  # theirs are nobody's walk, and take a minute to read
                for pattern in (name, f"{name}.*"):
                    options.per_module_options[pattern] = {"follow_imports": "skip"}
            cache = FileSystemCache()
            result = build.build(create_source_list(list(sources), options, cache), options, fscache=cache)
        finally:
            os.chdir(before)
        self._types = result.types
        self._functions: Functions = {}
        self._classes: list[nodes.TypeInfo] = []
        for name, tree in result.files.items():
            if f"{name}.".startswith(OURS):
                self._collect(tree, name)
        self._names = {id(function): name for name, function in self._functions.items()}
        # Sorted, so that what is meant itself comes after the same as an override.
        self._calls = {
            name: dict(sorted(self._called(function.body), key=lambda call: not call[1]))
            for name, function in self._functions.items()
        }

    def from_(self, name: str, reaches: Callable[[str], bool] = lambda _: False) -> set[str]:
        """Return the functions that a reader of `name` follows, and itself."""
        seen, waiting = {name}, [name]
        while waiting:
            for called, is_override in self._calls[waiting.pop()].items():
                if called not in seen and (not is_override or reaches(called)):
                    seen.add(called)
                    waiting.append(called)
        return {one for one in seen if _has_body(self._functions[one])}

    def _collect(self, found: Any, prefix: str) -> None:
        if isinstance(found, nodes.Decorator):
            found = found.func
        if isinstance(found, nodes.FuncDef):
            self._functions[f"{prefix}.{found.name}"] = found
            prefix = f"{prefix}.{found.name}"
        if isinstance(found, nodes.ClassDef):
            self._classes.append(found.info)
            prefix = f"{prefix}.{found.name}"
        for child in _children(found):
            if isinstance(child, nodes.Statement):
                self._collect(child, prefix)

    def _called(self, node: Any) -> Iterator[tuple[str, bool]]:
        """Yield the names of functions that stand in a body, and whether only an override of what is meant."""
        if isinstance(node, nodes.Decorator):
            node = node.func
        if isinstance(node, nodes.FuncDef):  # within another one
            yield self._names[id(node)], False
            return
        if isinstance(node, nodes.MemberExpr) and (node.node is None or isinstance(node.node, nodes.Var)):
            yield from self._methods(self._types.get(node.expr), node.name)
        elif isinstance(node, nodes.RefExpr):
            yield from self._meant(node.node)
        elif isinstance(node, nodes.SuperExpr) and node.info:
            yield from self._meant(
                next((base.names[node.name].node for base in node.info.mro[1:] if node.name in base.names), None)
            )
        elif isinstance(node, nodes.WithStmt):
            for one in node.expr:
                yield from self._methods(self._types.get(one), "__enter__")
        for child in _children(node):
            yield from self._called(child)

    def _meant(self, node: Any) -> Iterator[tuple[str, bool]]:
        if isinstance(node, nodes.TypeInfo):
            for name in ("__init__", "__post_init__"):
                yield from self._meant(getattr(node.get(name), "node", None))
        if isinstance(node, nodes.Decorator):
            node = node.func
        if id(node) in self._names:
            yield self._names[id(node)], False

    def _methods(self, kind: Type | None, name: str) -> Iterator[tuple[str, bool]]:
        kind = get_proper_type(kind)
        if isinstance(kind, TupleType):  # of a NamedTuple
            kind = kind.partial_fallback
        if isinstance(kind, UnionType):
            for one in kind.items:
                yield from self._methods(one, name)
        elif isinstance(kind, TypeVarType):
            yield from self._methods(kind.upper_bound, name)
        elif isinstance(kind, TypeType | CallableType):
            yield from self._methods(kind.item if isinstance(kind, TypeType) else kind.ret_type, name)
        elif isinstance(kind, Instance):
            for heir in self._classes:
                if kind.type in heir.mro[1:] and name in heir.names:
                    yield from ((called, True) for called, _ in self._meant(heir.names[name].node))
            yield from self._meant(getattr(kind.type.get(name), "node", None))


def _children(node: Any) -> Iterator[Any]:
    """Yield the statements and expressions within a node, but not what its names refer to."""
    members = {name for kind in type(node).__mro__ for name in getattr(kind, "__mypyc_attrs__", ())}
    waiting = [getattr(node, name, None) for name in sorted(members - _LINKS) if not name.startswith("__")]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, nodes.Statement | nodes.Expression):
            yield one


def _has_body(function: nodes.FuncDef) -> bool:
    """Return whether it does anything; mypy gives a dataclass an `__init__` that only passes."""
    nothing = (nodes.StrExpr, nodes.EllipsisExpr)
    rest = [one for one in function.body.body if not isinstance(one, nodes.PassStmt)]
    return not all(isinstance(one, nodes.ExpressionStmt) and isinstance(one.expr, nothing) for one in rest)
