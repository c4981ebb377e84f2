"""`trainmaster advise`, and `explain` of what has not run yet, on this machine's real speeds."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.local.command import BIN

EXAMPLES = Path(__file__).parents[2] / "examples"


def advise(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([BIN, "advise", *arguments], capture_output=True, text=True, check=False, timeout=500)


def explain(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([BIN, "explain", *arguments], capture_output=True, text=True, check=False, timeout=500)


def test_advice_for_an_example_ends_with_a_recommendation() -> None:
    done = advise(str(EXAMPLES / "digits" / "job.yaml"), "--network", "10Gbit", "--output", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    strategies = [line["strategy"] for line in answer["predictions"]]
    assert strategies[0] == "OneDevice"
    assert "AllReduce" in strategies
    assert all(line["stepSeconds"] > 0 for line in answer["predictions"])
    assert answer["conclusion"].startswith("Distributing ")


def test_a_job_file_is_explained_with_the_numbers_of_its_own_model() -> None:
    done = explain(str(EXAMPLES / "digits" / "job.yaml"))
    assert done.returncode == 0, done.stderr
    for words in ("data parallel, synchronous, decentralized", "Each step every rank sends", "The model has"):
        assert words in done.stdout


def test_a_script_is_explained_without_numbers() -> None:
    done = explain(str(EXAMPLES / "script" / "job.yaml"))
    assert done.returncode == 0, done.stderr
    assert "its model cannot be looked into" in done.stdout


def test_a_bad_job_file_is_explained_as_check_does(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("apiVersion: trainmaster.dev/v1\nkind: TrainingJob\nspec: {stratgy: {}}\n")
    done = explain(str(tmp_path / "job.yaml"))
    assert done.returncode == 2
    assert "Did you mean strategy" in done.stderr


def test_a_script_cannot_be_looked_into() -> None:
    done = advise(str(EXAMPLES / "script" / "job.yaml"))
    assert done.returncode == 2
    assert "a script cannot be looked into" in done.stderr


def test_a_bandwidth_that_is_none_is_refused() -> None:
    done = advise(str(EXAMPLES / "digits" / "job.yaml"), "--network", "fast")
    assert done.returncode == 2
    assert "'fast' is no bandwidth; write it like 10Gbit or 100Mbit" in done.stderr


@pytest.mark.parametrize("ending", ["import sys\nsys.exit(main())", "import os\nos._exit(main() or 0)"])
def test_a_module_that_ends_the_process_is_no_answer(tmp_path: Path, ending: str) -> None:
    """A script without `if __name__ == "__main__"`, which has just trained."""
    (tmp_path / "digits.py").write_text(f"def main(): ...\n{ending}\n")
    job = (EXAMPLES / "digits" / "job.yaml").read_text().replace("trainmaster_trainer.tasks.digits:", "digits:")
    (tmp_path / "job.yaml").write_text(job)
    done = explain(str(tmp_path / "job.yaml"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}/job.yaml: spec.training.task: its module ended the process")


@pytest.mark.parametrize("text", ["a: !!bool x", "a: !!timestamp x"])
def test_a_value_that_is_not_of_its_tag_is_no_document(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    done = explain(str(tmp_path / "status"))
    assert (done.returncode, done.stderr) == (
        2,
        f"trainmaster: {tmp_path}/status: neither JSON nor YAML (of at most 256 KiB) with an object in it\n",
    )


def test_what_a_task_prints_is_not_taken_for_the_answer(tmp_path: Path) -> None:
    noisy = "import atexit, os\nfrom trainmaster_trainer.tasks.digits import Digits\n"
    noisy += "atexit.register(print, 'bye', end='')\nprint('.', end='')\nos.write(1, b'caf\\xe9')\n"
    (tmp_path / "noisy.py").write_text(noisy)
    job = (
        (EXAMPLES / "digits" / "job.yaml")
        .read_text()
        .replace("trainmaster_trainer.tasks.digits:Digits", "noisy:Digits")
    )
    (tmp_path / "job.yaml").write_text(job)
    done = explain(str(tmp_path / "job.yaml"))
    assert done.returncode == 0, done.stderr
    assert "The model has" in done.stdout


def test_a_task_that_does_not_exist_is_named(tmp_path: Path) -> None:
    job = (EXAMPLES / "digits" / "job.yaml").read_text().replace("digits:Digits", "digits:Digit")
    (tmp_path / "job.yaml").write_text(job)
    done = advise(str(tmp_path / "job.yaml"))
    assert done.returncode == 2
    assert "has no 'Digit'" in done.stderr
    assert "Traceback" not in done.stderr
