"""Read the docstrings below the fields of models, for `kubectl explain`, the reference page and messages."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Iterator
from functools import cache

from trainmaster.api.model import fields_of


@cache
def descriptions(model: type) -> dict[str, str]:
    """Return what a model and its bases say of their fields: `description`, else the docstring below; by Python names.

    Pydantic would read it while it makes each class (`use_attribute_docstrings`), which is a fifth of the time in
    which every command starts; few of them need it.
    """
    bases = [base for base in reversed(model.__mro__) if hasattr(base, "__pydantic_fields__")]
    below = itertools.chain.from_iterable(_below_fields(_classes(base.__module__)[base.__name__]) for base in bases)
    given = {name: field.description for name, field in fields_of(model).items() if field.description}
    return {**dict(below), **given}


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by their names."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _below_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the name of each field of a class that has a docstring, and that docstring without its indent."""
    for field, below in itertools.pairwise(node.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
