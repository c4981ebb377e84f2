"""Tell from a script's source whether it starts processes by torch.multiprocessing, whoever starts the script. Pure.

In each of several ranks they would be a group of their own, which trains a model of its own. In doubt nothing is told:
where a condition decides, where the script asks for its place among the ranks, and where it cannot be read.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, Sequence, Tuple

EACH_STARTS = (
    "each of the {} ranks starts training processes of its own, in a group apart from those of the other ranks: each "
    "rank trains a model of its own. The ranks are the processes: let each call the training function itself, without "
    "torch.multiprocessing.spawn, with its place from RANK, LOCAL_RANK and WORLD_SIZE; or set spec.workers.replicas, "
    "and spec.workers.gpus where there are any, to 1"
)
_STARTS = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"})
_PLACES = re.compile(r"(GROUP_|LOCAL_|ROLE_)?(RANK|WORLD_SIZE)|(TORCHELASTIC|TRAINMASTER)_\w+|is_torchelastic_launched")


def spawns_always(source: str) -> str:
    """Return the function of torch's, as the script writes it, by which it starts processes; empty if in doubt."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    stored = {id(node.slice) for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)}
    if any(_PLACES.fullmatch(_word(node)) for node in nodes if id(node) not in stored):
        return ""
    known = dict(_names(nodes))
    bodies = [node.body for node in nodes if isinstance(node, (ast.Module, ast.FunctionDef))]
    for call in (call for body in bodies for call in _calls(body)):
        module, dot, member = call.rpartition(".")
        if f"{known.get(module, module)}{dot}{member if dot else known.get(member, '')}" in _STARTS:
            return call
    return ""


def _word(node: ast.AST) -> str:
    """Return a text, or the last part of a name; empty where a node is neither."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names(nodes: Sequence[ast.AST]) -> Iterator[Tuple[str, str]]:
    """Yield what names of modules and of their members stand for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((one.asname, one.name) for one in node.names if one.asname)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def _calls(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the functions that are called whenever the body of a script, or of a function, runs."""
    for statement in statements:
        if isinstance(statement, (ast.With, ast.Try)) or (
            isinstance(statement, ast.If) and "id='__name__'" in ast.dump(statement.test)
        ):
            yield from _calls(statement.body)
        elif isinstance(statement, (ast.Expr, ast.Assign)) and isinstance(statement.value, ast.Call):
            yield ast.unparse(statement.value.func)
        elif isinstance(statement, ast.If) and any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            return  # what comes after it is under a condition
