"""Expressions for a script's output: what is wrong with one is said with its cure, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.core.replica_environment import training_plan

from tests.api.changes import good_job

BAD = {
    "no group": ("loss=[0-9.]+", "has 0 groups"),
    "two groups": ("(loss)=([0-9.]+)", "write (?:...) for all others"),
    "not closed": ("loss=([0-9.]+", "missing ), unterminated subpattern at position 5"),
    "nothing": ("", "is empty"),
    "too long": ("(a)" + "b" * 254, "at most 256"),
    "too deep": ("(" * 128 + ")" * 128, "has 128 groups"),
    "repeated for ever": ("(a){99999999999999999999}", "is no regular expression"),
    "a number": (5, "quotes"),
}


def a_script(**progress: Any) -> dict[str, Any]:
    job = good_job()
    job["spec"]["training"] = {"command": ["python", "train.py"], "progress": progress}
    return job


@pytest.mark.parametrize(("expression", "words"), BAD.values(), ids=BAD.keys())
def test_an_expression_that_cannot_be_used_is_refused(expression: Any, words: str) -> None:
    """The API server cannot read Python's expressions; there the job ends as InvalidSpec."""
    problems = load(yaml.safe_dump(a_script(loss=expression)))
    assert isinstance(problems, list)
    assert [problem.path for problem in problems] == ["spec.training.progress.loss"]
    assert words in f"{problems[0].message}. {problems[0].cure}"


def test_expressions_reach_the_agent() -> None:
    loaded = load(yaml.safe_dump(a_script(loss="loss=([0-9.]+)", total=r"\d+/(\d+) \[")))
    assert isinstance(loaded, TrainingJob)
    assert training_plan(loaded).progress == {"loss": "loss=([0-9.]+)", "total": r"\d+/(\d+) \["}
