"""Generated files are what their generator makes of the models today."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from trainmaster.api.generate import ROOT, generated

FILES = generated()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_generated_file_is_up_to_date(path: Path) -> None:
    """`make generate` writes them; nobody edits them."""
    assert path.read_text() == FILES[path], "run `make generate`"


def test_the_phases_are_drawn_from_their_table() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert generator["PAGE"].read_text() == generator["states_page"](), "run `make generate`"


def test_the_classes_of_failures_are_drawn_from_their_table() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert generator["FAILURES"].read_text() == generator["failures_page"](), "run `make generate`"
