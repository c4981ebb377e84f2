"""The commands that show and drive jobs, on a real API server and on folders of local runs, by the same words."""

import json
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from trainmaster.cli.main import main
from trainmaster.cluster import access, following

from .commanding import Jobs, Run, a_run


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """A process that holds the lock of a folder, as `trainmaster run` does, until Ctrl-C."""
    made: list[subprocess.Popen[bytes]] = []

    def live(folder: Path) -> subprocess.Popen[bytes]:
        program = (
            "import sys, time; from pathlib import Path; from trainmaster.local.workdir import Workdir\n"
            "with Workdir(Path(sys.argv[1])):\n    print('locked', flush=True); time.sleep(100)"
        )
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE)
        made.append(process)
        assert process.stdout
        process.stdout.readline()
        return process

    yield live
    for process in made:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


PROGRESS = {"step": 40, "totalSteps": 100, "loss": 0.5, "summary": "40/100"}


def test_list_shows_what_kubectl_shows(jobs: Jobs, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_PAGE", 2)
    for number in range(5):
        jobs.create(f"job-{number}")
    jobs.tell("job-3", phase="Running", attempt=1, progress=PROGRESS, message="Attempt 1 trains.")
    code, out, _ = run("list")
    head, *rows = out.splitlines()
    assert (code, head.split()[:5]) == (0, ["NAME", "STRATEGY", "PHASE", "WORKERS", "STEP"])
    assert [row.split()[0] for row in rows] == [f"job-{number}" for number in range(5)]
    assert rows[3].split()[:3] == ["job-3", "AllReduce", "Running"]
    assert {"40/100", "0.5"} < set(rows[3].split())
    assert "Attempt 1 trains." in run("list", "-o", "wide")[1]
    assert run("list", "-o", "name")[1].split() == [f"trainingjob.trainmaster.dev/job-{n}" for n in range(5)]
    assert len(json.loads(run("list", "-o", "json")[1])["items"]) == 5
    assert yaml.safe_load(run("list", "-o", "yaml")[1])["items"][3]["status"]["phase"] == "Running"
    assert jobs.namespace in run("list", "-A")[1]
    assert "no jobs" in run("list", "-n", "default")[2]


def test_a_list_of_many_pages_has_each_job_once(jobs: Jobs, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_PAGE", 2)
    made = [f"job-{number}" for number in range(5)]
    for name in made:
        jobs.create(name)
    out = run("list", "-o", "name", "-n", jobs.namespace)[1]
    assert sorted(line.rpartition("/")[2] for line in out.split()) == made


def test_runs_here_stand_beside_jobs_there(jobs: Jobs, run: Run, living: Callable[[Path], object]) -> None:
    jobs.create()
    a_run(Path(".trainmaster/digits-1"), phase="Succeeded", progress=PROGRESS)
    a_run(Path(".trainmaster/digits-2"), phase="Running", progress=PROGRESS)
    a_run(Path(".trainmaster/digits-3"), phase="Running", progress=PROGRESS)
    living(Path(".trainmaster/digits-3"))
    rows = [line.split() for line in run("list")[1].splitlines()]
    assert rows[0][:2] == ["WHERE", "NAME"]
    assert [row[2:4] for row in rows[1:4]] == [
        [".trainmaster/digits-1", "Succeeded"],
        [".trainmaster/digits-2", "Stopped"],
        [".trainmaster/digits-3", "Running"],
    ]
    assert rows[4][:2] == [jobs.namespace, "digits"]
    assert "digits-2" in run("list", "--local")[1]
    message = "is stopped now, in attempt 0 at step 40/100: The run was ended from outside."
    assert f".trainmaster/digits-2 {message}" in run("status", "digits-2")[1]
    assert f"The job {message}" in run("explain", ".trainmaster/digits-2")[1]
    assert "The job is running now" in run("explain", ".trainmaster/digits-3")[1]
    assert "WHERE" not in run("list", "--local")[1]


def test_without_a_cluster_the_runs_here_are_shown(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    a_run(Path(".trainmaster/digits-1"), phase="Succeeded")
    code, out, err = run("list")
    assert (code, err) == (0, "")
    assert "digits-1" in out
    none = "the kubeconfig (~/.kube/config) cannot be used: it is not there, or names no cluster"
    for word in ("status", "logs", "wait"):
        told = f"trainmaster {word}: digits-2 is no run here, and of a cluster: {none}\n"
        assert run(word, "digits-2") == (3, "", told)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    code, out, err = run("list")
    assert code == 3
    assert "digits-1" in out
    assert "nowhere" in err


def test_status_tells_the_story_and_nothing_in_it_is_obeyed_by_a_terminal(jobs: Jobs, run: Run) -> None:
    jobs.create()
    evil = "\x1b]0;owned\x07<script>\r\nforged"
    entry = {
        "attempt": 1,
        "time": "2026-11-25T10:00:00Z",
        "class": "PythonError",
        "evidence": evil,
        "decision": "Restart",
    }
    code = {"sha256": "a" * 64, "commit": "b" * 40, "dirty": True}
    jobs.tell(phase="Running", attempt=2, progress=PROGRESS, message=evil, restarts=[entry], code=code)
    code_, out, _ = run("status", "digits")
    assert code_ == 0
    assert "\x1b" not in out
    assert "\r" not in out
    assert "\\x1b]0;owned" in out
    assert f"Code: {'a' * 12}, commit {'b' * 40} with changes" in out
    assert json.loads(run("status", "digits", "-o", "json")[1])["metadata"]["name"] == "digits"
    (name,) = run("status", "digits", "-o", "name")[1].split()
    assert run("status", name)[0] == 0, "its name as it is printed"
    code_, _, err = run("status", "digits-\x1b[31m")
    assert code_ == 3
    assert err == "trainmaster status: digits-\\x1b[31m cannot be the name of a job\n"
    assert "\x1b" not in err


def later(what: Callable[[], object]) -> threading.Thread:
    """Do something when the command has begun to wait: it looks at the job first, and waits then."""
    thread = threading.Timer(1.0, what)
    thread.start()
    return thread


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_wait_ends_at_either_end(jobs: Jobs, run: Run, phase: str, code: int) -> None:
    jobs.create()
    thread = later(lambda: jobs.tell(phase=phase, message="All is over."))
    assert run("wait", "digits", "--timeout", "60")[:2] == (code, f"digits: {phase}. All is over.\n")
    thread.join()
    assert run("wait", "digits")[0] == code


def test_several_are_waited_for_and_deleted_by_one_command(jobs: Jobs, run: Run) -> None:
    for name, phase in (("good", "Succeeded"), ("bad", "Failed"), ("new", "Pending")):
        jobs.create(name)
        jobs.tell(name, phase=phase)
    assert run("wait", "bad", "good", "bad")[:2] == (1, "bad: Failed.\ngood: Succeeded.\n")
    code, out, err = run("wait", "new", "good", "--timeout", "1")
    assert (code, out) == (4, "good: Succeeded.\n")
    assert "new has not ended after 1 s; its phase is Pending" in err
    code, out, err = run("delete", "good", "nobody", "bad")
    assert (code, out.count("is deleted")) == (3, 2)
    assert "there is no job nobody" in err


def test_wait_for_a_phase_and_for_too_long(jobs: Jobs, run: Run) -> None:
    jobs.create()
    assert run("wait", "digits", "--timeout", "1")[0] == 4
    thread = later(lambda: jobs.tell(phase="Running", attempt=1))
    assert run("wait", "digits", "--for", "Running")[0] == 0
    thread.join()


@pytest.mark.parametrize("words", [("wait",), ("logs", "-f")])
def test_a_job_that_vanishes_meanwhile_is_an_end(jobs: Jobs, run: Run, words: tuple[str, ...]) -> None:
    jobs.create()
    thread = later(lambda: jobs.server.call("DELETE", f"{jobs.path}/digits"))
    code, _, err = run(words[0], "digits", *words[1:])
    thread.join()
    assert code == 3
    assert "job digits" in err


def test_stop_and_resume(jobs: Jobs, run: Run) -> None:
    jobs.create()
    code, _, err = run("stop", "digits")
    assert code == 2
    assert "it would begin at step 0 again" in err
    assert "suspend" not in jobs.job()["spec"] or not jobs.job()["spec"]["suspend"]
    assert run("stop", "digits", "--force")[0] == 0
    assert jobs.job()["spec"]["suspend"] is True
    assert run("resume", "digits")[0] == 0
    assert jobs.job()["spec"]["suspend"] is False
    jobs.create("kept", checkpoint={"storage": {"path": "/data"}})
    assert run("stop", "kept")[0] == 0
    jobs.create("given")
    jobs.tell("given", phase="Running", attempt=1, storage={"persistentVolumeClaim": {"claimName": "models"}})
    assert run("stop", "given")[0] == 0, "the administrator's storage keeps it"
    jobs.tell(phase="Succeeded")
    code, _, err = run("stop", "digits", "--force")
    assert (code, err) == (2, "digits has succeeded already\n")


def test_scale_and_delete(jobs: Jobs, run: Run) -> None:
    jobs.create()
    assert run("scale", "digits", "4")[0] == 0
    assert jobs.job()["spec"]["workers"]["replicas"] == 4
    code, _, err = run("scale", "digits", "100000")
    assert code == 3
    assert "spec.workers.replicas" in err
    assert run("delete", "digits")[0] == 0
    assert run("delete", "digits")[::2] == (
        3,
        f"trainmaster delete: there is no job digits in namespace {jobs.namespace}\n",
    )


def test_a_word_that_is_no_name_touches_no_job(jobs: Jobs, run: Run) -> None:
    """Without a name, the path of a job is that of all jobs."""
    jobs.create()
    for name in ("", ".", "..", "../trainingjobs", "digits/status", "digits?x=y", "Digits", "\x1b[31m"):
        for word, *more in (("delete",), ("scale", "1"), ("stop", "--force"), ("resume",), ("status",), ("wait",)):
            code, _, err = run(word, name, *more, "-n", jobs.namespace)
            assert (code, "cannot be the name of a job" in err) == (3, True), (word, name, err)
            assert "\x1b" not in err
    assert jobs.job()["spec"]["workers"]["replicas"] == 2


def test_an_empty_word_is_not_the_run_in_the_present_folder(
    jobs: Jobs, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert run("status", ".")[0] == 0
    code, _, err = run("status", "")
    assert (code, err) == (3, "trainmaster status: an empty word cannot be the name of a job\n")


@pytest.mark.parametrize("words", [("--for", "Runing"), ("--timeout", "nan"), ("--timeout", "-1")])
def test_what_never_comes_is_not_waited_for(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["wait", "digits", *words])
    told = "Did you mean Running?" if "--for" in words else f"'{words[1]}' is no number of seconds"
    assert told in capsys.readouterr().err


def test_logs_of_what_is_not_there(jobs: Jobs, run: Run) -> None:
    jobs.create()
    assert "has no pods now" in run("logs", "digits")[2]
    entry = {
        "attempt": 1,
        "time": "2026-11-25T10:00:00Z",
        "step": 7,
        "replica": "worker-1",
        "evidence": "KeyError: 'a'",
    }
    jobs.tell(phase="Failed", restarts=[entry])
    assert "Of the failure at step 7 the ledger has: KeyError: 'a'" in run("logs", "digits")[2]
    made = {"trainmaster.dev/job": "digits", "trainmaster.dev/role": "worker", "trainmaster.dev/index": "0"}
    jobs.pod("digits-worker-0-2", {**made, "trainmaster.dev/incarnation": "2"})
    jobs.tell(incarnations={"worker-0": 2})
    code, out, err = run("logs", "digits", "--all", "--history")
    assert (code, out) == (0, "")
    assert "worker-0-0, worker-0-1: no such pod is there any more, and its log went with it\n" in err
    assert "worker-1-0: no such pod is there any more" in err
    assert "the ledger has: KeyError: 'a'" in err
    assert "worker-0-2" not in err, "it is there, and has printed nothing yet"
    assert "digits has printed nothing so far; trainmaster status digits tells" in run("logs", "digits")[2]
    jobs.tell(lastLines=[{"replica": "worker-1", "text": "step 6\n\x1b]0;owned\x07"}])
    code, out, err = run("logs", "digits", "--all", "--history")
    assert (code, out) == (0, "worker-1-0 (its end) | step 6\nworker-1-0 (its end) | \\x1b]0;owned\\x07\n"), err
    code, out, err = run("logs", "digits", "--rank", "1")
    assert (code, out) == (0, "step 6\n\\x1b]0;owned\\x07\n")
    assert "worker-1 has no pod now" in err
    code, _, err = run("logs", "digits", "--rank", "2")
    assert code == 2
    assert "there is no rank 2; the job has ranks 0 to 1" in err
    assert run("logs", "nobody")[0] == 3


def test_logs_of_a_run_here(jobs: Jobs, run: Run) -> None:
    folder = str(a_run(Path(".trainmaster/digits-1"), phase="Failed"))
    assert run("logs", folder)[1] == "of 0, 0\n"
    assert run("logs", "digits-1", "--rank", "1")[1] == "of 1, 1\n", "by the folder's name, too"
    assert run("logs", folder, "--rank", "1", "--previous")[1] == "of 1, 0\n"
    assert sorted(run("logs", folder, "--all")[1].splitlines()) == ["worker-0 | of 0, 0", "worker-1 | of 1, 1"]
    told = ["worker-0-0 | of 0, 0", "worker-1-0 | of 1, 0", "worker-1-1 | of 1, 1"]
    assert run("logs", folder, "--all", "--history")[1].splitlines() == told
    assert run("logs", folder, "--rank", "1", "--history")[1].splitlines() == told[1:]
    assert "was never replaced" in run("logs", folder, "--previous")[2]
    assert "there is no log of worker-7; there are worker-0, worker-1" in run("logs", folder, "--rank", "7")[2]


def test_a_line_of_100_megabytes_is_cut_and_obeyed_by_nobody(jobs: Jobs, run: Run) -> None:
    folder = a_run(Path(".trainmaster/digits-1"), phase="Failed")
    with (folder / "logs" / "digits-worker-0-0.log").open("wb") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\nnext \x1b]0;owned\x07\x1b[31mred\x1b[0m\nlast")
    tracemalloc.start()
    try:
        code, out, _ = run("logs", str(folder))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    long, following_one, last = out.splitlines()
    assert (code, last) == (0, "last")
    assert len(long) < following.LONGEST_LINE + 10
    assert following_one == "next \\x1b]0;owned\\x07red", "a pipe gets no colours"
    assert peak < 16 << 20


def test_a_run_here_is_waited_for_stopped_and_deleted(
    jobs: Jobs, run: Run, living: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    folder = a_run(Path(".trainmaster/digits-1"), phase="Running")
    process = living(folder)
    assert run("wait", "digits-1", "--for", "Running")[0] == 0
    code, _, err = run("code", "digits-1", "-o", "back")
    assert (code, "ran on this machine" in err) == (2, True)
    assert run("delete", "digits-1")[0] == 2
    assert run("stop", "digits-1")[0] == 0
    assert process.wait(100) == -signal.SIGINT or process.returncode == 1
    assert run("stop", "digits-1")[0] == 2
    assert run("wait", "digits-1")[0] == 1
    assert "trainmaster run JOB.yaml --workdir" in run("resume", "digits-1")[2]
    assert run("delete", "digits-1")[0] == 0
    assert not folder.exists()
    mine = a_run(Path("mine"), phase="Succeeded")
    Path("mine/thesis.txt").write_text("years of work")
    assert run("delete", "mine")[0] == 2
    assert (mine / "thesis.txt").exists()


def test_the_commands_do_not_slow_the_start_of_run() -> None:
    """`main` imports nothing of theirs before it knows which command it is."""
    program = "import sys; import trainmaster.cli.main as m; m._parser(); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"kubernetes", "pydantic", "yaml", "trainmaster.cli.submit", "trainmaster.cluster"} & set(told)


def test_an_unknown_command_gets_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    for word, meant in (("sbmit", "Did you mean submit?"), ("\x1b[31m", "choose from")):
        with pytest.raises(SystemExit):
            main([word])
        told = capsys.readouterr().err
        assert meant in told
        assert "\x1b" not in told
