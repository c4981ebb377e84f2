"""A sweep on a real API server; the test writes what an operator would."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from trainmaster.cli.sweep_there import MARK, There
from trainmaster.wire import names

from .commanding import Jobs, Run
from .lab import TASK

OVER = ("--over", "training.seed=1,2,3", "--submit", "--parallel", "2", "--metric", "accuracy", "--no-code")


@pytest.fixture
def job(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a job."""
    monkeypatch.setattr(There, "pause", 0.1)
    spec = {"strategy": {"type": "AllReduce"}, "training": TASK, "workers": {"replicas": 2}}
    document = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": "digits"}, "spec": spec}
    Path("job.yaml").write_text(yaml.safe_dump(document))
    return "job.yaml"


@contextlib.contextmanager
def operated(jobs: Jobs, ends: dict[str, float | None]) -> Iterator[list[int]]:
    """Let jobs end with these figures when they are there: None is a failure. It yields how many ran at once."""
    over, most, ended = threading.Event(), [0], set[str]()

    def operate() -> None:
        while not over.wait(0.1):
            listed = jobs.server.call("GET", jobs.path)["items"]
            there = [item["metadata"]["name"] for item in listed if not item["spec"].get("suspend")]
            live = [name for name in there if name not in ended]
            most[0] = max(most[0], len(live))
            if most[0] < min(2, len(ends)):
                continue  # a quicker end would be there before the second job, whose making may take its time
            for name in live[:1]:
                figure = ends.get(name)
                evaluation = {"step": 1, "figures": {"accuracy": figure}}
                phase = {"phase": "Failed", "message": "Too bad."} if figure is None else {"phase": "Succeeded"}
                jobs.tell(name, progress={"step": 1, "evaluation": evaluation if figure else None}, **phase)
                ended.add(name)

    thread = threading.Thread(target=operate)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def test_a_sweep_of_jobs(jobs: Jobs, run: Run, job: str) -> None:
    with operated(jobs, {"digits-sweep-01": 0.5, "digits-sweep-02": 0.75, "digits-sweep-03": None}) as most:
        code, out, err = run("sweep", job, *OVER)
    assert code == 0, err
    assert "Best by accuracy (0.75): digits-sweep-02. Again: --set training.seed=2" in out
    assert "digits-sweep-03 Failed (" in err
    assert "Too bad." in err
    assert most[0] == 2
    assert jobs.job("digits-sweep-02")["spec"]["training"]["seed"] == 2
    code, again, err = run("sweep", job, *OVER)
    assert (code, again) == (0, out), "all is known already"
    assert "begins" not in err


def test_a_sweep_whose_jobs_all_fail_or_vanish(jobs: Jobs, run: Run, job: str) -> None:
    def delete() -> None:
        end = time.monotonic() + 200
        while jobs.server.try_call("DELETE", f"{jobs.path}/digits-sweep-01").status == 404 and time.monotonic() < end:
            time.sleep(0.1)  # it has not been submitted yet

    deleted = threading.Thread(target=delete)
    deleted.start()
    code, out, _ = run("sweep", job, *OVER[2:], "--over", "training.seed=1")
    deleted.join()
    assert code == 1
    assert "None of 1 has succeeded. digits-sweep-01: it was deleted" in out


def test_a_job_whose_submission_was_cut_off_is_submitted_again(jobs: Jobs, run: Run, job: str) -> None:
    """Killed between the job and its code: it would be waited for until the operator ends it."""
    over = (*OVER[2:-1], "--code", ".", "--over", "training.seed=1")
    with operated(jobs, {"digits-sweep-01": 0.5}):
        assert run("sweep", job, *over)[0] == 0
    first = jobs.job("digits-sweep-01")
    jobs.server.call("DELETE", f"{jobs.path}/digits-sweep-01")
    mark = {MARK: first["metadata"]["annotations"][MARK], names.SUBMISSION: "abc123"}
    metadata = {"name": "digits-sweep-01", "annotations": mark}
    jobs.server.call("POST", jobs.path, {**first, "metadata": metadata, "spec": {**first["spec"], "suspend": True}})
    with operated(jobs, {"digits-sweep-01": 0.75}):
        code, out, err = run("sweep", job, *over)
    assert code == 0, err
    assert "Best by accuracy (0.75)" in out
    assert names.SUBMISSION not in jobs.job("digits-sweep-01")["metadata"]["annotations"]


def test_a_job_of_somebody_else_is_left_alone(jobs: Jobs, run: Run, job: str) -> None:
    jobs.create("digits-sweep-02")
    code, _, err = run("sweep", job, *OVER)
    assert code == 2
    assert "there is a job digits-sweep-02 of another sweep, or of none; name this one by --name" in err
    assert MARK not in str(jobs.job("digits-sweep-02"))


def test_a_cluster_that_does_not_let_us_in(jobs: Jobs, run: Run, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jobs.server.kubeconfig(Path("expired").resolve(), "expired-token")
    monkeypatch.setenv("KUBECONFIG", str(path))
    code, _, err = run("sweep", job, *OVER)
    assert code == 3
    assert "does not accept your credentials" in err
    assert "the same command goes on" in err
