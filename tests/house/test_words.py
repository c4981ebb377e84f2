"""Docstrings begin with a whole sentence: a reader understands what a thing is or does without its neighbours."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from trainmaster.api.generate import ROOT

MOST_FRAGMENTS = 0.001
# A sentence that begins with one of these is nearly always a relative clause, a question or a mere phrase.
FRAGMENTS = frozenset(
    {
        "Whether",
        "What",
        "Whatever",
        "Which",
        "Who",
        "Whoever",
        "Whose",
        "How",
        "Why",
        "When",
        "Where",
        "While",
        "Until",
        "Unless",
        "If",
        "As",
        "Else",
        "Nor",
        "And",
        "Or",
        "But",
        "Of",
        "For",
        "From",
        "With",
        "Without",
        "By",
        "In",
        "On",
        "At",
        "To",
        "Those",
        "That",
        "Also",
        "Not",
        "Never",
        "None",
        "Only",
        "All",
        "Both",
        "Each",
        "Every",
        "After",
        "Before",
        "Once",
    }
)

CALLERS = re.compile(r"(^|[.:]\s+)(Called|Used|Imported) by ")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield where each docstring of a file stands, and its text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def test_docstrings_begin_with_a_whole_sentence() -> None:
    files = [path for folder in ("operator", "trainer") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [(place, text.split(maxsplit=1)[0]) for path in files for place, text in docstrings(path)]
    fragments = [place for place, first in found if first in FRAGMENTS]
    assert len(found) > 2000
    assert len(fragments) <= MOST_FRAGMENTS * len(found), fragments


def test_no_docstring_says_who_calls() -> None:
    """The callers change, and nobody looks here then."""
    files = [path for folder in ("operator", "trainer") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [place for path in files for place, text in docstrings(path) if CALLERS.search(text)]
    assert not found


def field_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield where the text of each field with a default stands, and the text: it is what `kubectl explain` shows.

    The text of a field that must be set may be a phrase: `trainmaster check` says it after `Set name:`.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        for field, text in pairwise(node.body):
            has_default = isinstance(field, ast.AnnAssign) and field.value is not None
            match text:
                case ast.Expr(value=ast.Constant(value=str(said))) if has_default:
                    yield f"{path.relative_to(ROOT)}:{text.lineno}", said


def test_texts_of_fields_are_no_fragments() -> None:
    files = sorted((ROOT / "operator" / "trainmaster" / "api").glob("*.py"))
    found = [(place, text.split(maxsplit=1)[0]) for path in files for place, text in field_texts(path)]
    assert len(found) > 200
    assert [place for place, first in found if first in FRAGMENTS - {"Never"}] == []  # "Never do this" is whole
