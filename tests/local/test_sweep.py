"""A sweep on this machine, as a real process with real runs."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from trainmaster.cli.main import main
from trainmaster.wire import names

from tests.local.command import BIN, TASKS, a_job, a_script, abandoned_scratch


def sweep(folder: Path, warm: Path, *words: str) -> subprocess.Popen[str]:
    """The command, which shares the warm parent of the tests."""
    variables = {**os.environ, names.ENV_WARM_SOCKET: str(warm), "PYTHONPATH": str(TASKS)}
    return subprocess.Popen(
        [str(BIN), "sweep", "job.yaml", *words],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_sweep_goes_on_after_ctrl_c_where_it_was(folder: Path, warm_parent: Path) -> None:
    (folder / "job.yaml").write_text(json.dumps(a_job(steps=12, workers=1)))
    words = ("--over", "training.seed=1,2,3", "--parallel", "1", "--name", "s")
    first = sweep(folder, warm_parent, *words)
    assert first.stderr
    for line in first.stderr:
        if line.startswith("s-01 Succeeded"):
            break
    other = sweep(folder, warm_parent, *words)
    assert "another command drives the sweep s" in other.communicate(timeout=200)[1]
    assert other.returncode == 2
    first.send_signal(signal.SIGINT)
    told = first.communicate(timeout=250)[1]
    assert first.returncode == 130
    assert "of 3 are done. The same command goes on" in told
    again = sweep(folder, warm_parent, *words)
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert "s-01 begins" not in err, "it is done"
    assert {"s-01", "s-02", "s-03"} <= set(out.split())
    assert "Best by loss" in out
    changed = sweep(folder, warm_parent, "--over", "training.seed=1,2", "--name", "s")
    assert "of other values or another job" in changed.communicate(timeout=200)[1]
    assert not abandoned_scratch()


def test_a_sweep_whose_jobs_all_fail_ends_clearly(folder: Path, warm_parent: Path) -> None:
    job = a_script("import sys; sys.exit('no such data')", folder, failurePolicy={"maxRestarts": 0})
    (folder / "job.yaml").write_text(json.dumps(job))
    process = sweep(folder, warm_parent, "--over", "training.seed=1,2", "--parallel", "2")
    out, err = process.communicate(timeout=250)
    assert process.returncode == 1, err
    assert "None of 2 has succeeded. small-sweep-01: " in out
    assert "Traceback" not in out + err
    assert not abandoned_scratch()


def test_a_value_that_gives_no_valid_job_starts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "job.yaml").write_text(json.dumps(a_job()))
    for over, why in (
        ("training.steps=10,-1", "steps=-1 gives no valid job"),
        ("training.stepps=1,2", "Did you mean steps"),
    ):
        assert main(["sweep", "job.yaml", "--over", over]) == 2
        assert why in capsys.readouterr().err
    assert main(["sweep", "none.yaml", "--over", "training.steps=1"]) == 2
    with pytest.raises(SystemExit):
        main(["sweep", "job.yaml", "--over", "training.steps=1,2", "--parallel", "0"])
    assert "--parallel: 1 is the least" in capsys.readouterr().err
    assert not (folder / ".trainmaster").exists()
