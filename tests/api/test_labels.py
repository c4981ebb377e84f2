"""Labels and fields of pods that the check answers with a cure, though CEL cannot see them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob

from tests.api.changes import changed, good_job

PLACES = (
    "metadata.labels",
    "spec.workers.nodeSelector",
    "spec.workers.template.metadata.labels",
    "spec.workers.template.spec.nodeSelector",
)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"team": "a b"}, "is not the value of a label"),
    ({"team": "-a"}, "is not the value of a label"),
    ({"team": "a/b"}, "is not the value of a label"),
    ({"team": "ä"}, "is not the value of a label"),
    ({"a b": "c"}, "is not the name of a label"),
    ({"Example.org/team": "c"}, "is not the name of a label"),
    ({"example.org/": "c"}, "is not the name of a label"),
    ({"a" * 64: "c"}, "is not the name of a label"),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("labels", "words"), BAD, ids=[str(one) for one, _ in BAD])
def test_a_bad_label_is_refused_with_its_line(place: str, labels: dict[str, str], words: str) -> None:
    problems = load(yaml.safe_dump(changed(good_job(), {place: labels})))
    assert isinstance(problems, list)
    (problem,) = problems
    assert problem.path == f"{place}.{next(iter(labels))}"
    assert words in problem.message
    assert "Use at most 63 letters" in problem.cure


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("labels", [{"team": ""}, {"example.org/a.b_c": "V-1.2_3"}, {"a": "b" * 63}])
def test_a_good_label_is_not(place: str, labels: dict[str, str]) -> None:
    assert isinstance(load(yaml.safe_dump(changed(good_job(), {place: labels}))), TrainingJob)


ELSEWHERE = [
    ("terminationGracePeriodSeconds", 5, "template: {spec: {terminationGracePeriodSeconds: ...}}"),
    ("livenessProbe", {}, "containers: [{name: trainer, livenessProbe: ...}]"),
    ("labels", {"a": "b"}, "template: {metadata: {labels: ...}}"),
    ("command", ["a"], "Write spec.training.command"),
    ("limits", {"cpu": 1}, "Set cpu, memory and gpus"),
]


@pytest.mark.parametrize(("field", "value", "cure"), ELSEWHERE)
def test_a_field_of_a_pod_is_answered_with_its_place(field: str, value: Any, cure: str) -> None:
    problems = load(yaml.safe_dump(changed(good_job(), {f"spec.workers.{field}": value})))
    assert isinstance(problems, list)
    (problem,) = problems
    assert (problem.path, problem.message) == (f"spec.workers.{field}", f"there is no field {field} here")
    assert cure in problem.cure
