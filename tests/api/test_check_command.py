"""`trainmaster check` and `trainmaster crd`: what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainmaster.api.schema import crd as the_crd
from trainmaster.cli.check import check, load_or_report
from trainmaster.cli.crd import crd

from tests.api.changes import changed, good_job

NOTE = {
    "path": "spec.checkpoint.storage",
    "message": "not set: on a cluster the model is in the pods' own folders and is gone with them, unless the "
    "administrator gives a storage to every job (defaultStorage of the chart)",
}
NOT_KEPT = f"note: {NOTE['path']}: {NOTE['message']}"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.yaml"
    file.write_text(yaml.safe_dump(good_job()))
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(changed(good_job(), {"spec.workers.memory": "16GB"})))
    return file


def test_good(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0, and a word of comfort."""
    assert check([str(good)], "text") == 0
    assert capsys.readouterr().out == f"{good}: TrainingJob digits is good\n{good}: {NOT_KEPT}\n"


def test_bad(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2, and file:line: path: message. cure."""
    assert check([str(good), str(bad)], "text") == 2
    expected = f"{bad}:13: spec.workers.memory: memory is not an amount of memory for training; without a unit"
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --nproc-per-node 3 t.py", "the job has 2 workers of 1. Set spec.workers.replicas to 3, or"),
        ("torchrun --tee 3 t.py", "torchrun's --tee is not supported. The output of every rank is in the log"),
        ("env A=1 torchrun t.py", "env starts torchrun in each of the 2 ranks"),
        ("torchrun --nproc-per-node auto t.py", ""),
        ("torchrun --nproc-per-node 2 t.py", ""),
    ],
)
def test_a_torchrun_that_no_rank_would_carry_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    """On the line of the command; what only the machine knows is left to the ranks."""
    file = tmp_path / "job.yaml"
    training = {"training": {"command": command.split()}, "workers": {"replicas": 2}}
    file.write_text(yaml.safe_dump({**good_job(), "spec": {"strategy": {"type": "AllReduce"}, **training}}))
    assert check([str(file)], "text") == (2 if said else 0)
    out = capsys.readouterr().out
    assert said in out
    assert ("spec.training.command: " in out) == bool(said)


@pytest.mark.parametrize(
    ("training", "heard"),
    [({"command": ["python", "train.py"]}, False), ({"task": "a:B", "steps": 1, "globalBatchSize": 8}, True)],
)
def test_what_only_a_task_hears_of_is_a_note_beside_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], training: dict[str, Any], heard: bool
) -> None:
    strategy = {"type": "AllReduce", "allReduce": {"algorithm": "Ring"}}
    spec = {"strategy": strategy, "training": {**training, "seed": 7}, "workers": {"replicas": 2}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({**good_job(), "spec": spec}))
    assert check([str(file)], "text") == 0
    out = capsys.readouterr().out
    for field in ("spec.training.seed", "spec.strategy.allReduce"):
        assert (f"note: {field}: is for a task; " in out) == (not heard)


def test_what_comes_later_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is good; this version cannot do all of it."""
    file = tmp_path / "later.yaml"
    file.write_text(yaml.safe_dump(changed(good_job(), {"spec.scheduling": {"gang": "Kueue"}})))

    assert check([str(file)], "text") == 0
    assert f"{file}: note: spec.scheduling.gang: this version of Trainmaster" in capsys.readouterr().out


@pytest.mark.parametrize(("workers", "named"), [({}, True), ({"image": "my/jax:1"}, False)])
def test_a_pod_that_would_not_have_the_framework_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: dict[str, str], named: bool
) -> None:
    file = tmp_path / "job.yaml"
    training = {"framework": "JAX", "command": ["python", "train.py"]}
    spec = {"strategy": {"type": "AllReduce"}, "training": training, "workers": {"replicas": 2, **workers}}
    file.write_text(yaml.safe_dump({**good_job(), "spec": spec}))
    assert check([str(file)], "text") == 0
    assert ("note: spec.workers.image: not set: on a cluster" in capsys.readouterr().out) == named


def test_json(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For editors and CI."""
    assert check([str(good), str(bad)], "json") == 2
    first, second = json.loads(capsys.readouterr().out)["files"]
    assert first == {"file": str(good), "good": True, "problems": [], "notes": [NOTE]}
    assert second["problems"][0]["line"] == 13
    assert second["problems"][0]["path"] == "spec.workers.memory"


@pytest.mark.parametrize(("name", "words"), [("none.yaml", "no such file"), (".", "is a directory")])
def test_not_a_file(tmp_path: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """2, and no traceback."""
    assert check([str(tmp_path / name)], "text") == 2
    assert words in capsys.readouterr().out


def test_load_or_report(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `trainmaster run` does first."""
    loaded = load_or_report(good)
    assert loaded is not None
    assert loaded.name == "digits"
    assert load_or_report(bad) is None
    assert "spec.workers.memory" in capsys.readouterr().err


def test_a_generated_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster makes one of it; here nobody does, and folders, replicas and an object store's keys want one."""
    file = tmp_path / "runs.yaml"
    file.write_text(yaml.safe_dump(changed(good_job(), {"metadata": {"generateName": "digits-"}})))
    job = load_or_report(file)
    assert job is not None
    assert job.name == "digits"
    assert check([str(file)], "text") == 0
    assert capsys.readouterr().out == f"{file}: TrainingJob digits- is good\n{file}: {NOT_KEPT}\n"


def test_crd(capsys: pytest.CaptureFixture[str]) -> None:
    """YAML that kubectl takes."""
    assert crd() == 0
    assert yaml.safe_load(capsys.readouterr().out) == the_crd()
