"""The documentation says what is so: its commands parse, its jobs are good, its programs compile, its links lead on."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from trainmaster.api.document import load
from trainmaster.api.generate import ROOT
from trainmaster.api.job import TrainingJob
from trainmaster.cli import main
from trainmaster.core.failures import classes

from docs import commands_page, troubleshooting_page, values_page

PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if path.parent.name != "decisions")
FENCE = re.compile(r"^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A piece of code in a page."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def fenced(language: str) -> list[Block]:
    """All fenced blocks of a language."""
    return [
        Block(page.relative_to(ROOT).as_posix(), text[: found.start()].count("\n") + 1, textwrap.dedent(found["text"]))
        for page in PAGES
        for text in [page.read_text()]
        for found in FENCE.finditer(text)
        if found["language"] == language
    ]


def commands() -> Iterator[Block]:
    """All lines that call trainmaster, without what is said beside them; architecture.md has them in a drawing."""
    for page in (page for page in PAGES if page.stem != "architecture"):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for part in re.split(r"\s{2,}|\s#\s", line.strip())[0].split("; "):
                if re.match(r"(\.venv/bin/)?trainmaster [a-z]", part) and line.startswith(("    ", "trainmaster")):
                    yield Block(page.relative_to(ROOT).as_posix(), number, part.split(" | ")[0])


@pytest.mark.parametrize("block", [*commands()], ids=str)
def test_a_command_is_one_that_trainmaster_takes(block: Block) -> None:
    main._parser().parse_args(shlex.split(block.text.removesuffix("\\"))[1:])


@pytest.mark.parametrize("block", fenced("yaml"), ids=str)
def test_a_job_in_a_page_is_good(block: Block) -> None:
    document = yaml.safe_load(block.text)
    if isinstance(document, dict) and document.get("kind") == "TrainingJob":
        assert isinstance(job := load(block.text), TrainingJob), job


@pytest.mark.parametrize("block", fenced("python"), ids=str)
def test_a_program_in_a_page_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_leads_to_a_file(page: Path) -> None:
    targets = [found["target"] for found in LINK.finditer(page.read_text())]
    gone = [one for one in targets if "://" not in one and not (page.parent / one).exists()]
    assert not gone


def test_every_page_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in PAGES if page.is_relative_to(docs)}
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    assert pages <= named, "add them to mkdocs.yml"


def test_the_commands_page_is_drawn_from_the_parsers() -> None:
    assert commands_page.PAGE.read_text() == commands_page.commands_page(), "run `make generate`"


def test_the_values_page_is_drawn_from_the_chart() -> None:
    assert values_page.PAGE.read_text() == values_page.values_page(), "run `make generate`"


def test_the_symptoms_are_drawn_from_the_table() -> None:
    assert troubleshooting_page.PAGE.read_text() == troubleshooting_page.troubleshooting_page(), "run `make generate`"


def test_no_advice_of_a_failure_class_is_said_twice() -> None:
    for row in classes.CLASSES:
        sentences = troubleshooting_page.advice(row).removesuffix(".").split(". ")
        assert len({*sentences}) == len(sentences), row.name


def test_each_failure_class_has_one_symptom() -> None:
    named = [name for _, names in troubleshooting_page.SYMPTOMS for name in names]
    assert sorted(named) == sorted(one.name for one in classes.CLASSES)
