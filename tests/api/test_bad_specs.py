"""Every bad spec is refused with one problem that names the field, the line and the cure."""

from __future__ import annotations

import pytest
import yaml
from trainmaster.api.document import load
from trainmaster.api.problem import Problem
from trainmaster.api.rules import RULES

from tests.api.bad_specs import BAD_SPECS
from tests.api.changes import BadSpec


@pytest.mark.parametrize("spec", BAD_SPECS, ids=lambda spec: spec.name)
def test_refused_with_field_and_cure(spec: BadSpec) -> None:
    """One mistake is one problem: what follows from it is not reported again."""
    problems = load(yaml.safe_dump(spec.job()))

    assert isinstance(problems, list)
    assert [spec.field] == [problem.path for problem in problems]
    assert spec.words in f"{problems[0].message}. {problems[0].cure}"


def test_the_table_is_large_and_its_names_differ() -> None:
    """The ids of the tests are these names."""
    assert len(BAD_SPECS) >= 60
    assert len({spec.name for spec in BAD_SPECS}) == len(BAD_SPECS)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.transition], ids=lambda rule: rule.name)
def test_every_rule_is_broken_by_a_bad_spec(rule: object) -> None:
    """A rule that nobody tried to break may hold for the wrong reason, in CEL as in Python."""
    assert rule.name in _broken_rules()  # type: ignore[attr-defined]


_BROKEN: set[str] = set()


def _broken_rules() -> set[str]:
    if not _BROKEN:
        texts = [((rule.message.split("{")[0], rule.cure.split("{")[0]), rule.name) for rule in RULES]
        for spec in BAD_SPECS:
            found = load(yaml.safe_dump(spec.job()))
            assert isinstance(found, list)
            _BROKEN.update(name for problem in found for key, name in texts if _is(problem, key))
    return _BROKEN


def _is(problem: Problem, text: tuple[str, str]) -> bool:
    return problem.message.startswith(text[0]) and problem.cure.startswith(text[1])
