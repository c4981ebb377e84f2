"""A strategy is a class, a row of the table and a page: one is added to a copy of the tree, and a job trains by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trainmaster.api.generate import ROOT

from tests.local.command import a_job

ROW = '    "EveryOther": StrategyTraits("all as usual", whole_models=True, fixed_size=True, advised=True),\n'
CLASS = '''"""EveryOther computes the whole batch on one device."""

from trainmaster_trainer.strategies.one_device import OneDevice


class EveryOther(OneDevice):
    """EveryOther is OneDevice under another name."""
'''
PAGE = '''"""Describe EveryOther."""

from trainmaster.advice.pages.strategy_page import DATA, DECENTRALIZED, GROUP, SYNCHRONOUS, StrategyPage

PAGE = StrategyPage(
    title="A strategy of a test",
    parallel=DATA,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="One process holds the whole model.",
    talks="Nobody talks to anybody.",
    take="A test wants one.",
    leave="It is over.",
    failure=GROUP,
    source="This test",
    yaml="{type: EveryOther}",
    traffic="nothing travels",
    memory="the whole model",
    picture="flowchart LR",
)
'''


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is installed and generated, with one strategy more."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("operator", "trainer", "docs", "charts", "crds", "bench/results"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    table = tree / "operator/trainmaster/wire/strategies.py"
    head = "STRATEGIES: Dict[str, StrategyTraits] = {\n"
    assert head in table.read_text()
    table.write_text(table.read_text().replace(head, head + ROW))
    (tree / "operator/trainmaster/advice/pages/every_other.py").write_text(PAGE)
    (tree / "trainer/trainmaster_trainer/strategies/every_other.py").write_text(CLASS)
    job = a_job(steps=2, workers=1, strategy={"type": "EveryOther"}, reproducible=True)
    job["spec"]["training"] |= {"task": "trainmaster_trainer.tasks.digits:Digits", "arguments": {}}
    (tree / "job.yaml").write_text(yaml.safe_dump(job))
    job["spec"]["elasticity"] = {"minReplicas": 1, "maxReplicas": 2}
    (tree / "elastic.yaml").write_text(yaml.safe_dump(job))
    return tree


def _python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(tree / folder) for folder in ("operator", "trainer", "."))
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=env, capture_output=True, text=True, check=False)


def _trainmaster(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _python(tree, "-c", "import sys; from trainmaster.cli.main import main; sys.exit(main())", *arguments)


def test_a_job_trains_by_it(tree: Path) -> None:
    run = _trainmaster(tree, "run", "job.yaml", "--workdir", str(tree / "runs"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tree.glob("runs/**/step-00000002/manifest.json"))


def test_the_rules_know_its_traits(tree: Path) -> None:
    assert _trainmaster(tree, "check", "job.yaml").returncode == 0
    refused = _trainmaster(tree, "check", "elastic.yaml")
    assert refused.returncode != 0
    assert "EveryOther" in refused.stdout + refused.stderr


def test_explain_has_its_words_and_its_numbers(tree: Path) -> None:
    told = _trainmaster(tree, "explain", "job.yaml")
    assert told.returncode == 0, told.stderr
    assert "EveryOther: A strategy of a test (data parallel, synchronous, decentralized; This test)." in told.stdout
    assert "Every rank: about" in told.stdout


def test_the_schema_and_the_pages_are_drawn_with_it(tree: Path) -> None:
    for module in ("trainmaster.api.generate", "docs.strategy_pages"):
        made = _python(tree, "-m", module)
        assert made.returncode == 0, made.stderr
    (crd,) = (tree / "crds").glob("trainmaster*.yaml")
    assert "- EveryOther" in crd.read_text()
    assert "EveryOther: all as usual." in " ".join(crd.read_text().split())
    page = (tree / "docs/strategies.md").read_text()
    assert "## EveryOther" in page
    assert "strategies/every_other.py)" in page
