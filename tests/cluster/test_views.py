"""The commands that look at trainings, on a real API server and on folders of local runs, by the same words."""

import fcntl
import json
import math
import os
import pty
import struct
import subprocess
import sys
import termios
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import pytest
from trainmaster.cli import drawing
from trainmaster.cli.curves import MOST_POINTS, Curve, of_file

from .commanding import Jobs, Run, a_run

EVIL = "\x1b]0;owned\x07<script>alert(1)</script>"
RESTART = {"attempt": 1, "time": "2026-11-25T10:00:00Z", "class": "PythonError", "step": 20, "decision": "Restart"}


def lines(steps: int, **more: object) -> str:
    """The metrics file of a training whose loss falls."""
    return "".join(
        json.dumps({"step": step, "loss": 2.0 / step, "samples_per_second": 100.0, "attempt": 1, **more}) + "\n"
        for step in range(1, steps + 1)
    )


def trained(folder: str = ".trainmaster/digits-1", steps: int = 40, text: str = "", **status: object) -> Path:
    """The folder of a run with a metrics file."""
    made = a_run(Path(folder), **{"phase": "Succeeded", "restarts": [RESTART], **status})
    (made / "checkpoints" / "metrics.jsonl").write_text(text or lines(steps))
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user who has no cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


@pytest.mark.parametrize("columns", [80, 200])
def test_a_plot_fills_the_terminal_and_no_more(
    here: Path, run: Run, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    trained(text=lines(40, metrics={EVIL: 0.5}))
    code, out, _ = run("plot", "digits-1")
    assert code == 0
    told = out.splitlines()
    assert max(map(len, told)) == columns
    assert told[0].startswith("digits-1 (Succeeded)")
    assert told[0].endswith("loss  last 0.05, least 0.05 at step 40, most 2 at 1")
    assert told[1].startswith("   2 │")
    assert "0.05 │" in told[10]
    assert told[12].split() == ["step", "1", "40"]
    assert told[13].index("^") == pytest.approx(columns / 2, abs=5)
    assert told[14] == "^ restart at step 20"
    _, out, _ = run("plot", "digits-1", "--metric", EVIL)
    assert "\x1b" not in out
    monkeypatch.setenv("COLUMNS", "60")
    told = run("plot", "digits-1")[1].splitlines()
    assert told[:2] == ["digits-1 (Succeeded)", "loss  last 0.05, least 0.05 at step 40, most 2 at 1"]


def test_a_plot_of_a_job_is_that_of_its_history(jobs: Jobs, run: Run) -> None:
    jobs.create()
    history = [{"step": step, "loss": 3.0 / step, "samplesPerSecond": 10.0} for step in (1, 2, 3)]
    evaluations = [{"step": 2, "figures": {"accuracy": 0.5}}, {"step": 3, "figures": {"accuracy": 0.75}}]
    jobs.tell(phase="Failed", history=history, evaluations=evaluations)
    code, out, _ = run("plot", "digits", "--metric", "samples/s", "--metric", "loss")
    assert code == 0
    assert "samples/s  last 10" in out
    assert "eval accuracy  last 0.75" in run("plot", "digits", "--metric", "eval accuracy")[1]
    assert "loss  last 1, least 1 at step 3, most 3 at 1" in out
    plain = json.loads(run("plot", "digits", "-o", "json")[1])
    assert plain["curves"]["loss"] == [[1, 3.0], [2, 1.5], [3, 1.0]]
    code, _, err = run("plot", "digits", "--metric", "los")
    assert (code, err) == (2, "trainmaster plot: digits has no figure los. Did you mean loss?\n")
    jobs.create("new")
    code, _, err = run("plot", "new")
    assert code == 2
    assert "new has no curve (Pending)" in err
    assert run("plot", "digits", "nobody")[0] == 3


def test_without_a_cluster_a_run_is_plotted_and_another_name_says_what_is_missing(here: Path, run: Run) -> None:
    trained()
    assert run("plot", "digits-1")[0] == 0
    code, _, err = run("plot", "digits-2")
    assert code == 3
    assert "digits-2 is no run here, and of a cluster: the kubeconfig" in err
    newest = Path(".trainmaster/digits-2-20261127-101500")
    newest.mkdir()
    assert f"digits-2 is a job whose newest run here is {newest}, and of a cluster: " in run("plot", "digits-2")[2]
    newest.rmdir()
    Path("digits-2").mkdir()
    assert "digits-2 is a folder without a run's status.json, and of a cluster: " in run("plot", "digits-2")[2]
    Path("digits-3").touch()
    assert "digits-3 is a file, and not the folder of a run, and of a cluster: " in run("plot", "digits-3")[2]


@pytest.mark.parametrize(
    "text", ["", "{", '{"step": 1', "\x00\xff\n", '{"step": NaN}\n', '{"step": -1, "loss": 1}\n', "[]\n"]
)
def test_a_metrics_file_that_is_no_good_has_no_curve(here: Path, run: Run, text: str) -> None:
    trained(text=text or "\n")
    code, _, err = run("plot", "digits-1")
    assert code == 2
    torn = (text or "\n").endswith("\n")
    assert ("is no metrics file" in err) is torn, err
    assert ("has no curve" in err) is not torn, err


def test_a_metrics_file_that_is_cut_off_in_the_middle_is_drawn_as_far_as_it_goes(here: Path, run: Run) -> None:
    whole = lines(40)
    trained(text=whole[: len(whole) // 2])
    code, out, _ = run("plot", "digits-1")
    assert code == 0
    assert "cannot be read" not in out, "the last line is being written"
    first, _, rest = whole.partition("\n")
    trained(text=f"{first[:9]}\n{rest}")
    assert "1 lines of metrics.jsonl cannot be read, and are left out" in run("plot", "digits-1")[1]


def test_a_link_in_place_of_the_file_is_not_followed(here: Path, run: Run) -> None:
    folder = trained()
    (here / "other.jsonl").write_text(lines(3))
    (folder / "checkpoints" / "metrics.jsonl").unlink()
    (folder / "checkpoints" / "metrics.jsonl").symlink_to(here / "other.jsonl")
    assert run("plot", "digits-1")[0] == 2


def test_of_a_million_steps_a_curve_keeps_little_and_the_shape() -> None:
    curve = Curve()
    for step in range(1, 1_000_001):
        curve.add(step, math.sin(step / 100_000))
    points = curve.points
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS
    assert all(abs(value - math.sin(step / 100_000)) < 0.02 for step, value in points)
    assert curve.last[0] == points[-1][0] == 1_000_000


def test_steps_that_are_trained_again_replace_their_points() -> None:
    curve = Curve()
    for step in (1, 2, 3, 4, 3, 4, 5):
        curve.add(step, float(step))
    assert [step for step, _ in curve.points] == [1, 2, 3, 4, 5]


def test_a_file_of_forty_megabytes_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as file:
        for step in range(1, 11):
            file.write(json.dumps({"step": step, "loss": 1.0, "text": "x" * 4_000_000}) + "\n")
        file.write(json.dumps({"step": 11, "evaluation": {"accuracy": 0.9}}) + "\n")
    tracemalloc.start()
    try:
        found = of_file(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.by_name["eval accuracy"].points == [(11, 0.9)]
    assert peak < 16 << 20


@pytest.mark.parametrize("values", [(1e308, -1e308), (0.0, 0.0), (5e-324, 0.0)])
def test_any_values_can_be_drawn(values: tuple[float, float]) -> None:
    points = [(0, values[0]), (1 << 53, values[1])]
    told = drawing.panel(points, (min(values), max(values)), (40, 5), braille=True)
    assert all(len(line) <= 40 for line in told)


def shown_on_a_terminal(*words: str, columns: int = 80, **variables: str) -> str:
    """What a command prints on a real terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    program = [sys.executable, "-m", "trainmaster", *words]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(program, stdout=theirs, stderr=theirs, env=environment | variables) as process:
        os.close(theirs)
        told = b""
        while data := _read(ours):
            told += data
    os.close(ours)
    assert process.returncode == 0, told
    return told.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_colours_are_for_terminals_that_want_them_and_dots_for_those_that_have_them(here: Path, run: Run) -> None:
    trained()
    assert "\x1b[36m" in shown_on_a_terminal("plot", "digits-1")
    assert "\x1b" not in shown_on_a_terminal("plot", "digits-1", NO_COLOR="1")
    assert "\x1b" not in run("plot", "digits-1")[1], "a pipe"
    plain = shown_on_a_terminal("plot", "digits-1", columns=200, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert plain.isascii()
    assert "*" in plain
    assert max(map(len, plain.splitlines())) == 200


def ran(folder: str, workers: int, text: str = "", **status: object) -> Path:
    """The folder of a run that knows its job."""
    job = {
        "metadata": {"name": "digits"},
        "spec": {
            "strategy": {"type": "AllReduce"},
            "training": {"task": "train:Digits", "steps": 40, "arguments": {"name": EVIL, "lr": workers / 10}},
            "workers": {"replicas": workers, "env": [{"name": "WANDB_API_KEY", "value": f"secret-{workers}"}]},
        },
    }
    made = trained(f".trainmaster/{folder}", 40, text, **status)
    (made / "job.json").write_text(json.dumps(job))
    return made


@pytest.mark.parametrize("columns", [80, 200])
def test_compare_shows_what_differs_and_the_figures_side_by_side(here: Path, run: Run, columns: int) -> None:
    for workers in (2, 4):
        ran(
            f"digits-{workers}", workers, progress={"step": 40, "totalSteps": 40, "evaluation": {"figures": {"a": 0.9}}}
        )
    code, out, _ = run("compare", "digits-2", "digits-4")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["digits-2", "digits-4"]
    assert ["workers.replicas", "2", "4"] in rows
    assert ["training.arguments.lr", "0.2", "0.4"] in rows
    assert ["loss", "0.05", "0.05"] in rows
    assert ["eval", "a", "0.9", "0.9"] in rows
    assert "secret" not in out
    assert "task" not in out, "it does not differ"
    wide = shown_on_a_terminal("compare", "digits-2", "digits-4", columns=columns)
    assert max(map(len, wide.splitlines())) <= columns
    plain = json.loads(run("compare", "digits-2", "digits-4", "-o", "json")[1])
    assert plain["spec"]["workers.replicas"] == {"digits-2": "2", "digits-4": "4"}


def test_compare_of_a_run_here_with_a_job_there(jobs: Jobs, run: Run) -> None:
    ran("digits-2", 2)
    jobs.create()
    code, out, _ = run("compare", "digits-2", "digits")
    assert code == 0
    assert "phase" in out
    assert "Their specs are equal." not in out
    jobs.create("same")
    assert "Their specs are equal." in run("compare", "digits", "same")[1]
    assert run("compare", "digits", "digits")[0] == 2
    code, _, err = run("compare", "digits", "nobody")
    assert code == 3
    assert f"nobody is no run here, and of a cluster: there is no job nobody in namespace {jobs.namespace}" in err


class Page(HTMLParser):
    """What a browser would take for elements and for text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the names."""
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text += data


def test_a_report_is_one_file_in_which_nothing_is_obeyed(here: Path, run: Run) -> None:
    restart = {
        **RESTART,
        "evidence": EVIL,
        "replica": "worker-1",
        "stacks": f"at 1\n{EVIL}",
        "why": EVIL,
        "secondsLost": 2,
    }
    goodput = {"since": "2026-11-25T09:59:00Z", "time": "2026-11-25T10:01:00Z", "training": 100, "recovering": 20}
    for workers in (2, 4):
        ran(
            f"digits-{workers}",
            workers,
            restarts=[restart],
            goodput=goodput,
            message=EVIL,
            startTime="2026-11-25T09:59:00Z",
        )
    evil = ran("digits-<img src=x onerror=alert(1)>", 4, text=lines(40, metrics={EVIL: 1, '"><script>': 2}))
    code, out, _ = run("report", "digits-2", "digits-4", str(evil), "-o", "all.html")
    assert (code, out) == (0, "all.html: open it in a browser, or mail it; it needs nothing beside it\n")
    page = Page(here / "all.html")
    assert not {"script", "img", "link", "iframe", "object", "a"} & set(page.tags)
    assert not {name for name in page.attributes if name.startswith("on")} | {"href", "src"} & page.attributes
    assert "alert(1)" in page.text, "it is shown, as text"
    assert "\x1b" not in (here / "all.html").read_text()
    assert "secret-2" not in page.text
    assert page.tags.count("polyline") >= 3
    for said in ("Goodput 83%", "workers.replicas", "Attempts over time", "evidence"):
        assert said in page.text
    assert "http" not in page.text.replace("http-equiv", "")


def test_a_report_overwrites_reports_only(here: Path, run: Run) -> None:
    trained()
    assert run("report", "digits-1")[0] == 0
    assert run("report", "digits-1")[0] == 0
    Path("digits-1.html").write_text("years of work")
    code, _, err = run("report", "digits-1")
    assert code == 2
    assert "is no report; name another file with -o" in err
    assert Path("digits-1.html").read_text() == "years of work"
    assert run("report", "digits-1", "-o", "nowhere/a.html")[::2] == (
        2,
        "trainmaster report: nowhere/a.html: no such file or directory\n",
    )
    assert [path.name for path in here.iterdir() if path.name.startswith(".digits")] == [], "nothing is left behind"


def test_a_report_of_a_job_that_has_not_begun(jobs: Jobs, run: Run) -> None:
    jobs.create()
    assert run("report", "digits")[0] == 0
    assert "Nothing has told a loss" in Page(Path("digits.html")).text
