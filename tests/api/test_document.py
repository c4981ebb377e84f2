"""A file to a job or to problems: lines, several at once, several documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainmaster.api.document import load, load_file
from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import Problem

GOOD = """\
apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  strategy: {type: AllReduce}
  training: {task: "a:B", steps: 5, globalBatchSize: 8}
"""
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def problems(content: str | bytes) -> list[Problem]:
    loaded = load(content)
    assert isinstance(loaded, list)
    return loaded


def the_problem(content: str | bytes) -> str:
    (problem,) = problems(content)
    return str(problem)


def test_all_problems_at_once_in_the_order_of_lines() -> None:
    """Unknown names, wrong types, bounds and rules, each on the line of its field."""
    found = problems(
        """\
apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {name: UPPER}
spec:
  strategy:
    type: Mesh
    mesh:
      data: 2
      tensr: 2
  training:
    task: a:B
    globalBatchSize: "8"
  workers:
    replicas: 4
    memory: 16GB
    env:
    - {name: A, value: 1}
    - {name: RANK, value: "1"}
  failurePolicy:
    maxRestarts: -1
"""
    )

    assert [(problem.line, problem.path) for problem in found] == [
        (3, "metadata.name"),
        (9, "spec.strategy.mesh.tensr"),
        (10, "spec.training.steps"),
        (12, "spec.training.globalBatchSize"),
        (15, "spec.workers.memory"),
        (17, "spec.workers.env[0].value"),
        (18, "spec.workers.env[1].name"),
        (20, "spec.failurePolicy.maxRestarts"),
    ]


def test_a_spelling_mistake_is_one_problem() -> None:
    """`steps` is not missing for somebody who wrote `step`."""
    assert the_problem(GOOD.replace("steps", "step")).startswith("6: spec.training.step: there is no field step here")


def test_rules_are_asked_although_the_strategy_cannot_be_read() -> None:
    """Required parts that are wrong do not hide the others."""
    found = problems(GOOD.replace("AllReduce", "Horovod").replace("steps: 5, ", "") + "  workers: {memory: 5}\n")

    assert [problem.path for problem in found] == ["spec.strategy.type", "spec.training.steps", "spec.workers.memory"]


def test_columns_order_what_stands_on_one_line() -> None:
    """JSON is YAML, and often one line."""
    found = problems('{"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"nam": 1}, "spec": {}}')

    assert [problem.path for problem in found] == ["metadata.name", "metadata.nam", "spec.strategy", "spec.training"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "1: the file is empty. Begin it with apiVersion"),
        ("# nothing\n", "1: the file is empty"),
        ("---\n---\n", "1: the file is empty"),
        ("- a\n- b\n", "1: this is YAML, but not an object with fields"),
        ("just words\n", "1: this is YAML, but not an object"),
        (OTHER, "2: kind: there is no TrainingJob here, but ConfigMap"),
        (f"{OTHER}---\n{OTHER}", "here, but ConfigMap, ConfigMap"),
        (GOOD.replace("TrainingJob", "TrainJob"), "2: kind: there is no TrainingJob here, but TrainJob. Did you mean"),
        (GOOD.replace("kind: TrainingJob\n", ""), "1: kind: kind is missing"),
        (GOOD.replace("dev/v1", "dev/v2"), "1: apiVersion: is the text"),
        (GOOD.replace("apiVersion: trainmaster.dev/v1\n", ""), "apiVersion is missing. Write apiVersion: trainmaster"),
        (GOOD.replace("metadata: {name: digits}\n", ""), "metadata: metadata is missing. Write metadata: {name"),
        (f"{GOOD}---\n{GOOD}", "8: this is the second of 2 TrainingJobs in one file. Put each into a file"),
    ],
)
def test_not_one_job(content: str, text: str) -> None:
    """What was found is told."""
    assert text in the_problem(content)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no", "must be a text, and is the word false"),
        ("0", "must be a text, and is the number 0"),
        ("''", "the job has no name"),
    ],
)
def test_a_name_that_is_no_text_is_one_problem(name: str, text: str) -> None:
    assert the_problem(GOOD.replace("name: digits", f"name: {name}")).startswith(f"3: metadata.name: {text}")


@pytest.mark.parametrize("content", [GOOD, f"{OTHER}---\n{GOOD}", f"{GOOD}---\n{OTHER}---\n", f"---\n{GOOD}...\n"])
def test_one_job_beside_others(content: str) -> None:
    """A claim or a ConfigMap may stand in the same file, as kubectl allows."""
    loaded = load(content)

    assert isinstance(loaded, TrainingJob)
    assert loaded.name == "digits"


def test_a_status_in_the_file_is_not_the_users_business() -> None:
    """`kubectl get -o yaml > job.yaml` gives one; the API server ignores it too."""
    assert isinstance(load(GOOD + "status: {phase: [1]}\n"), TrainingJob)


def test_an_exported_job_is_good() -> None:
    """With everything that the API server adds to the metadata."""
    added = "uid: a, resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z', managedFields: []"
    assert isinstance(load(GOOD.replace("{name: digits}", f"{{name: digits, {added}}}")), TrainingJob)


def test_a_file(tmp_path: Path) -> None:
    """Read in bytes: the encoding is YAML's affair."""
    file = tmp_path / "job.yaml"
    file.write_bytes(GOOD.encode("utf-16"))

    assert isinstance(load_file(file), TrainingJob)


def test_an_emptied_part_is_an_absent_one() -> None:
    """`checkpoint:` with all its lines commented out."""
    loaded = load(GOOD + "  checkpoint:\n    # keep: 3\n  workers:\n")

    assert isinstance(loaded, TrainingJob)
    assert loaded.spec.checkpoint.keep == 3
