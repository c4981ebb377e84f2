"""What spec and template both say, each otherwise, is refused by the check and by the operator; the same is accepted.

An API server takes such a file: to compare two lists costs more than it grants a rule (decision 0152).
"""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import jobs

from tests.api.changes import changed, good_job

MIB = {"emptyDir": {"sizeLimit": "1Mi"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MOUNT = {"name": "v", "mountPath": "/v"}


def _job(role: dict[str, Any], spec: dict[str, Any], role_name: str = "workers") -> dict[str, Any]:
    servers = {"spec.strategy.type": "ParameterServer"} if role_name != "workers" else {}
    return changed(good_job(), {**servers, f"spec.{role_name}": {"replicas": 2, **role, "template": {"spec": spec}}})


def _trainer(**said: Any) -> dict[str, Any]:
    return {"containers": [{"name": "side", "image": "a", **said}, {"name": "trainer", **said}]}


def _affinity(zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


# What the role says, what its template says, the field that is named, and what stands in both.
OTHERWISE: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "a variable": (
        {"env": [{"name": "B", "value": "1"}, {"name": "A", "value": "1"}]},
        _trainer(env=[{"name": "C", "value": "1"}, {"name": "A", "value": "2"}]),
        "containers[1].env[1]",
        "A stands in env",
    ),
    "a variable from elsewhere": (
        {"env": [{"name": "A", "value": "1"}]},
        _trainer(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        "containers[1].env[0]",
        "A stands in env",
    ),
    "a mount of another volume": (
        {"volumes": [{"name": "v", **MIB}], "volumeMounts": [MOUNT]},
        {"volumes": [{"name": "w", **MIB}], **_trainer(volumeMounts=[{"name": "w", "mountPath": "/v"}])},
        "containers[1].volumeMounts[0]",
        "/v stands in volumeMounts",
    ),
    "a mount that is written otherwise": (
        {"volumes": [{"name": "v", **MIB}], "volumeMounts": [MOUNT]},
        _trainer(volumeMounts=[{"name": "v", "mountPath": "/v/", "subPath": "a"}]),
        "containers[1].volumeMounts[0]",
        "/v/ stands in volumeMounts",
    ),
    "a volume": (
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", **MIB}]},
        "volumes[0]",
        "v stands in volumes",
    ),
    "affinity": (
        {"affinity": _affinity("a")},
        {"affinity": _affinity("b")},
        f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms stands beside the template",
    ),
}
# What adds up, or is the same.
ALIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a variable": ({"env": [{"name": "A", "value": ""}]}, _trainer(env=[{"name": "A"}])),
    "other variables": ({"env": [{"name": "A", "value": "1"}]}, _trainer(env=[{"name": "B", "value": "2"}])),
    "a variable of a sidecar": (
        {"env": [{"name": "A", "value": "1"}]},
        {"containers": [{"name": "side", "image": "a", "env": [{"name": "A", "value": "2"}]}]},
    ),
    "a mount": (
        {"volumes": [{"name": "v", **MIB}], "volumeMounts": [{**MOUNT, "readOnly": False}]},
        _trainer(volumeMounts=[{"name": "v", "mountPath": "/v/"}]),
    ),
    "a volume": ({"volumes": [{"name": "v", **MIB}]}, {"volumes": [{"name": "v", **MIB}, {"name": "w", **MIB}]}),
    "affinity": ({"affinity": _affinity("a")}, {"affinity": {**_affinity("a"), "podAffinity": {REQUIRED: []}}}),
    "a node's label": ({"nodeSelector": {"a": "1", "b": "1"}}, {"nodeSelector": {"b": "1", "c": "1"}}),
    "names": ({"serviceAccountName": "a", "priorityClassName": "p"}, {"serviceAccountName": "a"}),
    "a folder": ({}, _trainer(workingDir="/anywhere")),
    "how to pull": ({"imagePullPolicy": "Always"}, _trainer(imagePullPolicy="Always")),
}


@pytest.mark.parametrize("role", ["workers", "parameterServers"])
@pytest.mark.parametrize(("own", "template", "field", "what"), OTHERWISE.values(), ids=OTHERWISE.keys())
def test_the_check_names_both_places_and_the_cure(
    own: dict[str, Any], template: dict[str, Any], field: str, what: str, role: str
) -> None:
    problems = load(yaml.safe_dump(_job(own, template, role)))
    assert isinstance(problems, list)
    assert [problem.path for problem in problems] == [f"spec.{role}.template.spec.{field}"]
    assert problems[0].message.startswith(what)
    assert "template and, with other content, in " in problems[0].message
    assert problems[0].cure == "Remove one of the two, or say the same in both"
    assert problems[0].line > 1


@pytest.mark.parametrize(("own", "template"), ALIKE.values(), ids=ALIKE.keys())
def test_the_same_in_both_is_accepted(own: dict[str, Any], template: dict[str, Any]) -> None:
    assert isinstance(load(yaml.safe_dump(_job(own, template))), TrainingJob)


def test_other_mistakes_of_the_role_are_told_in_the_same_breath() -> None:
    own, template, *_ = OTHERWISE["a variable"]
    problems = load(yaml.safe_dump(_job({**own, "cpu": "four"}, template)))
    assert isinstance(problems, list)
    assert max(problem.path for problem in problems).endswith("env[1]")


def test_the_operator_leaves_such_a_job_alone_and_says_why_until_it_is_corrected() -> None:
    """No pod is made, nothing is given up: an edit is enough."""
    own, template, *_ = OTHERWISE["a variable"]
    document = changed(_job(own, template), {"metadata.uid": "u", "metadata.generation": 1})
    record = jobs.read(document)
    assert isinstance(record.parsed, ValidationError)
    told = jobs.invalid(record, record.parsed)
    assert told is not None
    status, event = told
    (condition,) = status.conditions
    assert (condition.type, status.phase, event.reason) == ("InvalidSpec", "Pending", "InvalidSpec")
    assert "spec.workers: A stands in env beside the template" in (status.message or "")
    assert "Remove one of the two, or say the same in both" in condition.message
