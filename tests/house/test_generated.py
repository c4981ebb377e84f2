"""Generated files are what their generator makes of the models today."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import get_args

import pytest
import yaml
from trainmaster.advice.framework_words import WORDS
from trainmaster.advice.textbook import TEXTBOOK
from trainmaster.api.generate import ROOT, generated
from trainmaster.api.strategy_spec import StrategySpec
from trainmaster.api.training_spec import Framework
from trainmaster.wire.frameworks import FRAMEWORKS, TORCH
from trainmaster.wire.strategies import STRATEGIES, module_of

from docs import monitoring_page, strategy_pages

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


def test_the_strategies_page_quotes_the_table_and_the_results() -> None:
    assert strategy_pages.PAGE.read_text() == strategy_pages.strategies_page(), "run `make generate`"


def test_the_monitoring_page_is_drawn_from_the_tables() -> None:
    assert monitoring_page.PAGE.read_text() == monitoring_page.monitoring_page(), "run `make generate`"


def test_every_page_is_of_a_strategy_of_the_table() -> None:
    pages = ROOT / "operator" / "trainmaster" / "advice" / "pages"
    assert {path.stem for path in pages.glob("*.py")} - {"__init__", "strategy_page"} == set(map(module_of, STRATEGIES))


def test_every_framework_has_words_an_adapter_and_a_page() -> None:
    others = set(FRAMEWORKS) - {TORCH}
    assert set(get_args(Framework)) == set(FRAMEWORKS)
    assert set(WORDS) == others
    adapters = ROOT / "trainer" / "trainmaster_trainer" / "agent" / "frameworks"
    assert {traits.adapter for traits in FRAMEWORKS.values()} - {None} == {
        path.stem for path in adapters.glob("*.py") if "def instruct(" in path.read_text()
    }
    pages = ROOT / "docs" / "frameworks"
    assert {path.stem for path in pages.glob("*.md")} - {"README"} == {name.lower() for name in others}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_the_page_of_a_strategy_shows_a_good_yaml_and_its_source(name: str) -> None:
    assert StrategySpec.model_validate(yaml.safe_load(TEXTBOOK[name].yaml)).type == name
    source = ROOT / "trainer" / "trainmaster_trainer" / "strategies" / module_of(name)
    assert source.is_dir() or source.with_suffix(".py").exists()
