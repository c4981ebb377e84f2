"""`--set path=value`: typed by the models, and a path that is not there gets the one that was meant."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from trainmaster.api.document import load_data
from trainmaster.api.problem import Problem
from trainmaster.cli.main import main

JOB = """
apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  strategy: {type: AllReduce}
  training: {task: "a.b:C", steps: 10, globalBatchSize: 8, arguments: {width: 4}}
  workers: {env: [{name: A, value: a}]}
"""


def changed(*words: str) -> dict[str, Any]:
    data = load_data(JOB, words)
    assert isinstance(data, dict), data
    return data


def refused(*words: str) -> Problem:
    problems = load_data(JOB, words)
    assert isinstance(problems, list)
    return problems[0]


@pytest.mark.parametrize(
    ("word", "place", "value"),
    [
        ("training.steps=500", ("spec", "training", "steps"), 500),
        ("spec.training.steps=500", ("spec", "training", "steps"), 500),
        ("training.arguments.lr=1e-3", ("spec", "training", "arguments", "lr"), 0.001),
        ("training.arguments.deep.er=yes", ("spec", "training", "arguments", "deep", "er"), True),
        ("training.arguments.name=a=b", ("spec", "training", "arguments", "name"), "a=b"),
        ("training.maxGradientNorm=1", ("spec", "training", "maxGradientNorm"), 1),
        ("training.precision=BF16", ("spec", "training", "precision"), "BF16"),
        ("workers.env[0].value=5", ("spec", "workers", "env", 0, "value"), "5"),
        ("workers.env[0].value=yes", ("spec", "workers", "env", 0, "value"), "yes"),
        ("workers.env[1]={name: B, value: b}", ("spec", "workers", "env", 1, "name"), "B"),
        ("workers.nodeSelector.gpu=true", ("spec", "workers", "nodeSelector", "gpu"), "true"),
        ("workers.cpu=2", ("spec", "workers", "cpu"), 2),
        ("workers.memory=16Gi", ("spec", "workers", "memory"), "16Gi"),
        ("workers.image=1.5", ("spec", "workers", "image"), "1.5"),
        ("checkpoint.storage.persistentVolumeClaim.claimName=m", ("spec", "checkpoint", "storage"), None),
        ("suspend=true", ("spec", "suspend"), True),
        ("metadata.name=other", ("metadata", "name"), "other"),
        ("metadata.labels.team=7", ("metadata", "labels", "team"), "7"),
        ("failurePolicy.hangSeconds=60", ("spec", "failurePolicy", "hangSeconds"), 60),
    ],
)
def test_a_field_is_changed(word: str, place: tuple[str | int, ...], value: object) -> None:
    found: Any = changed(word)
    for step in place:
        found = found[step]
    assert found == (value if value is not None else {"persistentVolumeClaim": {"claimName": "m"}})
    assert type(found) is type(value) or value is None


def test_the_last_of_two_counts_and_null_unsets() -> None:
    assert changed("training.steps=1", "training.steps=2")["spec"]["training"]["steps"] == 2
    assert changed("training.arguments=null")["spec"]["training"]["arguments"] is None
    words = ("training={command: [python, train.py]}", "training.command[1]=other.py")
    assert changed(*words)["spec"]["training"]["command"] == ["python", "other.py"]


@pytest.mark.parametrize(
    ("word", "message", "cure"),
    [
        ("trainig.steps=5", "--set trainig.steps=5: there is no field trainig here", "Did you mean training?"),
        ("training.stepps=5", "there is no field stepps", "Did you mean steps?"),
        ("training.steps.more=5", "below what stands before it", "reference"),
        ("workers.env.0.name=A", "0 stands after a list", "as [0], without a dot"),
        ("training[0]=5", "below what stands before it", "reference"),
        ("training.steps", "not of the form path=value", "--set training.steps=500"),
        ("=5", "not of the form path=value", "--set training.steps=500"),
        ("a..b=5", "not of the form path=value", "--set training.steps=500"),
        (f"training.arguments.a{'.b' * 3000}=1", "nested too deeply", "ten levels"),
        ("workers.env[7].value=5", "no item 7 in this list", "whole list"),
        ("training.command=[a", "no list or object of YAML", "[python, a.py]"),
        ("training.steps=many", "must be a whole number", "4"),
        ("training.steps=0", "must be at least 1", "1 or more"),
    ],
)
def test_what_does_not_fit_is_told_with_the_cure(word: str, message: str, cure: str) -> None:
    problem = refused(word)
    assert message in problem.message
    assert cure in problem.cure


def test_check_takes_standard_input_and_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def check(*words: str) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
        main(["check", "-", "--output", "json", *words])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["files"][0]
        return found

    assert check()["good"]
    assert check("--set", "training.steps=5")["good"]
    assert not check("--set", "training.\x1b[31m=5")["good"]
    (tmp_path / "job.yaml").write_text(JOB)
    assert main(["check", str(tmp_path / "job.yaml"), "--set", "workers.replicas=9"]) == 2
    assert "spec.training.globalBatchSize" in capsys.readouterr().out
