"""What no process can be started with is refused before one is: Linux limits the bytes of arguments and variables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob
from trainmaster.api.sizes import MOST_OF_A_PLAN, MOST_OF_A_SPEC
from trainmaster.core.replica_environment import agent_environment
from trainmaster.wire import names

from tests.api.changes import changed, good_job
from tests.api.test_schema import EVERY

MAX_ARG_STRLEN = 128 * 1024  # of Linux, with the zero at the end
A_TASK = {"task": "a:B", "steps": 1, "globalBatchSize": 8}
LARGE: dict[str, tuple[dict[str, Any], str]] = {
    "arguments": ({"spec.training": {**A_TASK, "arguments": {"text": "x" * 2**17}}}, "spec.training.arguments"),
    "many arguments": ({"spec.training": {**A_TASK, "arguments": {"n": [10**9] * 15_000}}}, "spec.training.arguments"),
    "command": ({"spec.training": {"command": ["python", *["x" * 4000] * 30]}}, "spec.training.command"),
    "escapes": ({"spec.training": {"command": ["python", *["\u00e9" * 4000] * 5]}}, "spec.training.command"),
    "bytes": ({"spec.workers.env": [{"name": "A", "value": "\U0001f600" * 32768}]}, "spec.workers.env[0].value"),
    "all": ({"spec.workers.env": [{"name": f"A{i}", "value": "x" * 32768} for i in range(40)]}, "spec.workers.env"),
}


@pytest.mark.parametrize(("change", "field"), LARGE.values(), ids=LARGE)
def test_too_large_to_start_is_refused_with_field_and_cure(change: dict[str, Any], field: str) -> None:
    """By what reads a file, and in what the operator says of a job that it cannot read."""
    job = changed(good_job(), change)
    with pytest.raises(ValidationError) as refused:
        TrainingJob.parse(job)
    (detail,) = refused.value.errors()
    told = ".".join(map(str, detail["loc"])).replace(".0.", "[0].")
    assert told == field
    assert "into a file" in detail["msg"]
    if field != "spec.workers.env":  # so many do not fit into a file, but for aliases
        text = json.dumps(job, ensure_ascii=False)
        problems = load(text)
        assert isinstance(problems, list)
        assert [(problem.path, "into a file" in problem.cure) for problem in problems] == [(field, True)]


def test_what_is_just_small_enough_fits_the_kernel() -> None:
    """With the longest of all that travels beside it, in letters of two bytes each."""
    longest = "/" + "\u00e9" * 1023
    arguments = {"text": "x" * (MOST_OF_A_PLAN - 20)}
    training = {**A_TASK, "arguments": arguments, "workingDirectory": longest}
    store = {"url": f"s3://{longest[:1000]}", "endpoint": f"http://{longest[:1000]}"}
    resume = {"path": longest, "step": 10**12}
    change = {"spec.training": training, "spec.checkpoint": {"storage": {"objectStore": store}, "resumeFrom": resume}}
    job = TrainingJob.parse(changed(good_job(), change))

    for name, value in agent_environment(job, names.WORKER, 0, 0).items():
        assert len(f"{name}={value}".encode()) < MAX_ARG_STRLEN


NUL: dict[str, dict[str, Any]] = {
    "spec.workers.env[0].value": {"spec.workers.env": [{"name": "A", "value": "a\0b"}]},
    "spec.training.command[1]": {"spec.training": {"command": ["python", "a\0b"]}},
    "spec.training.workingDirectory": {"spec.training": {**A_TASK, "workingDirectory": "a\0b"}},
    "spec.checkpoint.storage.path": {"spec.checkpoint": {"storage": {"path": "/a\0b"}}},
    "spec.workers.image": {"spec.workers.image": "a\0b"},
}


@pytest.mark.parametrize(("field", "change"), NUL.items(), ids=NUL)
def test_the_end_of_a_text_is_not_in_its_middle(field: str, change: dict[str, Any]) -> None:
    """The kernel would take what stands before it, and Python takes nothing."""
    job = changed(good_job(), change)
    with pytest.raises(ValidationError, match="holds the character NUL"):
        TrainingJob.parse(job)
    problems = load(json.dumps(job))
    assert isinstance(problems, list)
    assert [(problem.path, problem.message.split(",")[0]) for problem in problems] == [
        (field, "holds the character NUL")
    ]


HEAVY: dict[str, dict[str, Any]] = {
    "affinity": {"spec.workers.affinity": {"nodeAffinity": {"x": "y" * MOST_OF_A_SPEC}}},
    "a sidecar": {"spec.workers.template": {"spec": {"containers": [{"name": "a", "args": ["x" * 4000] * 150}]}}},
    "many parts": {"spec.workers.template": {"spec": {f"x{i}": "y" * 30_000 for i in range(40)}}},
}


@pytest.mark.parametrize("change", HEAVY.values(), ids=HEAVY)
def test_a_spec_that_weighs_too_much_is_refused(change: dict[str, Any]) -> None:
    """Nothing in it is too long by itself, or it stands where the CRD leaves everything free."""
    job = changed(good_job(), change)
    with pytest.raises(ValidationError, match="as JSON"):
        TrainingJob.parse(job)
    assert isinstance(load(json.dumps(job)), list), "so is the file"


def test_a_spec_that_weighs_too_much_by_its_aliases_is_refused_with_the_cure() -> None:
    job = changed(good_job(), {"spec.training": A_TASK, "spec.workers.affinity": {f"x{i}": 1 for i in range(30)}})
    text = json.dumps(job).replace('"x0": 1', '"x0": &long "' + "y" * 20_000 + '"')
    for number in range(1, 30):
        text = text.replace(f'"x{number}": 1', f'"x{number}": *long')
    problems = load(text)
    assert isinstance(problems, list)
    assert [(problem.path, problem.cure) for problem in problems] == [
        ("spec", "Put what is large into ConfigMaps and name them")
    ]


def test_what_the_crd_knows_of_weighs_little() -> None:
    """Beside what is free, nothing can be made larger than what `check` takes: lists of long texts have a sum."""
    for path in ("training.command", "workers.env", "workers.template.spec.containers[].args"):
        (rule,) = EVERY[f"spec.{path}"]["x-kubernetes-validations"]
        assert ".sum() <= " in rule["rule"]
    annotations = EVERY["spec.workers.template.metadata.annotations"]
    assert annotations["maxProperties"] * annotations["additionalProperties"]["maxLength"] <= MOST_OF_A_SPEC // 2


@pytest.mark.parametrize(
    ("place", "beneath"),
    [("spec.workers.volumes", False), ("spec.workers.template", True), ("spec.parameterServers.volumes", False)],
)
def test_a_token_for_us_lasts_for_an_hour_at_most(place: str, beneath: bool) -> None:
    """Not in the CRD, which leaves volumes free; the admission policy says it of the pod."""
    for seconds, audience, fits in ((3600, "trainmaster", True), (86400, "trainmaster", False), (86400, "other", True)):
        token = {"serviceAccountToken": {"path": "t", "audience": audience, "expirationSeconds": seconds}}
        volumes = [{"name": "a", "projected": {"sources": [token]}}]
        strategy = {"spec.strategy": {"type": "ParameterServer"}} if "Servers" in place else {}
        job = changed(good_job(), {**strategy, place: {"spec": {"volumes": volumes}} if beneath else volumes})
        problems = load(json.dumps(job))
        assert isinstance(problems, list) != fits
        if isinstance(problems, list):
            assert [problem.cure for problem in problems] == ["Set expirationSeconds to 3600 at most"]
