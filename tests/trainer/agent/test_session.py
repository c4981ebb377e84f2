"""session.report as a script calls it, in processes of its own: what it tells, and that it never ends a run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from trainmaster.wire import codec, names
from trainmaster.wire.progress_page import ProgressFile, ProgressPage
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent.status_collector import rank_progress
from trainmaster_trainer.script_progress import FirstStep

BEGINNING = "import os, sys\nfrom trainmaster_trainer import session\nreport = session.report\n"


class Reported(NamedTuple):
    """What is known of a script afterwards."""

    page: ProgressPage
    lines: list[dict[str, Any]]
    said: str


def reported(folder: Path, text: str, attempt: int = 1, rank: int = 0) -> Reported:
    """Run a script as a rank."""
    path = folder / "page"
    file = ProgressFile(str(path), create=True, attempt=attempt)
    variables = {
        names.ENV_PROGRESS_FILE: str(path),
        names.ENV_ATTEMPT: str(attempt),
        names.ENV_CHECKPOINTS: str(folder / "checkpoints"),
        names.ENV_TRAINING: codec.encode(TrainingPlan("AllReduce", command=("a",), global_batch_size=8)).decode(),
        "RANK": str(rank),
    }
    said = run(text, **variables)
    metrics = folder / "checkpoints" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    return Reported(file.read(), lines, said)


def run(text: str, **variables: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", BEGINNING + text + "\nassert 'torch' not in sys.modules"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(line.pop("time") > 0 for line in lines)
    return lines


def test_outside_of_trainmaster_it_is_nothing() -> None:
    assert run("report(step=1, total=5, loss='what', x=object())") == ""


def test_a_report_is_the_page_and_a_line(tmp_path: Path) -> None:
    text = (
        "for step in (1, 2, 3):\n    report(step=step, total=10, loss=1 / step, accuracy=0.5)\nreport(step=3, late=7)"
    )
    page, lines, said = reported(tmp_path, text)
    assert (page.step, page.total_steps, page.loss, page.phase, page.resumed_step) == (3, 10, 1 / 3, "train", 1)
    assert page.samples_per_second > 0
    assert without_times(lines) == [
        {"step": 1, "loss": 1.0, "metrics": {"accuracy": 0.5}, "attempt": 1},
        {"step": 2, "loss": 0.5, "metrics": {"accuracy": 0.5}, "attempt": 1},
        {"step": 3, "loss": 1 / 3, "metrics": {"accuracy": 0.5, "late": 7.0}, "attempt": 1},
    ]
    assert said == ""


def test_the_start_ends_where_the_first_step_began_and_is_known_with_the_second(tmp_path: Path) -> None:
    page, _, _ = reported(tmp_path, "report(step=0, total=10)\nreport(step=1)\nreport(step=1, loss=0.5)")
    assert rank_progress({0: page}, {})[0].start_seconds is None
    page, _, _ = reported(tmp_path, "report(step=0, total=10)\nreport(step=1)\nreport(step=2)")
    assert (rank_progress({0: page}, {})[0].start_seconds or 0) > 0
    first = FirstStep(started=100.0)
    for moment in (130.0, 132.0, 190.0):
        first.note(moment)
    assert first.start_seconds == 28, "the first step takes as long as the second one"
    assert FirstStep(100.0, 28.0).start_seconds == 28, "of the program before it in the same rank"


def test_a_restart_cuts_off_the_lines_that_it_trains_again(tmp_path: Path) -> None:
    """Each step has one line, whatever restarts there were."""
    reported(tmp_path, "for step in range(1, 8):\n    report(step=step, loss=step)")
    page, lines, _ = reported(tmp_path, "for step in (5, 6):\n    report(step=step, loss=-step)", attempt=2)
    assert page.resumed_step == 5, "what it says first"
    assert [(line["step"], line["loss"], line["attempt"]) for line in lines] == [
        *((step, step, 1) for step in range(1, 5)),
        (5, -5, 2),
        (6, -6, 2),
    ]


def test_other_ranks_have_a_page_and_no_lines(tmp_path: Path) -> None:
    page, lines, _ = reported(tmp_path, "report(step=4, loss=1.0)", rank=1)
    assert (page.step, lines) == (4, [])


def test_numbers_of_other_libraries_are_numbers(tmp_path: Path) -> None:
    """A tensor of one element, as far as this process may know."""
    scalar = "class Scalar:\n    def item(self):\n        return 0.25\n    def __index__(self):\n        return 9\n"
    page, lines, said = reported(tmp_path, scalar + "report(step=Scalar(), loss=Scalar(), flag=True)")
    assert (page.step, page.loss, lines[0]["metrics"], said) == (9, 0.25, {"flag": 1.0}, "")


def test_a_count_may_be_a_whole_float(tmp_path: Path) -> None:
    """As of samples / batch."""
    page, lines, said = reported(tmp_path, "report(step=8 / 2, total=12 / 2, loss=1.0)")
    assert (page.step, page.total_steps, lines[0]["step"], said) == (4, 6, 4, "")


BAD = {
    "step='ten'": "step=ten is not a whole number from 0 on",
    "step=-1": "step=-1 is not a whole number",
    "step=1.5": "step=1.5 is not a whole number",
    "step=True": "step=True is not a whole number",
    "step=10**30": "is not a whole number",
    "step=5, total='x'": "total=x is not a whole number",
    "step=5, loss='0.5'": "loss=0.5 is not a number",
    "step=5, loss=[1, 2]": "loss=[1, 2] is not a number",
    "step=5, other=object()": "is not a number",
    "step=5, loss=1 + 2j": "loss=(1+2j) is not a number",
    "step=5, **{'n' * 200: 1.0}": "at most 64 figures with names of 128 characters are kept",
    "step=5, **{f'n{i}': i for i in range(10_000)}": "at most 64 figures",
    "loss=1.0": "figures without a step are not kept",
}


@pytest.mark.parametrize(("arguments", "words"), BAD.items(), ids=BAD.keys())
def test_what_is_wrong_is_said_once_and_left_out(tmp_path: Path, arguments: str, words: str) -> None:
    _, lines, said = reported(tmp_path, f"for _ in range(3):\n    report({arguments})\nreport(step=7, loss=0.5)")
    assert words in said
    assert said.count("trainmaster: session.report:") == 1
    assert (lines[-1]["step"], lines[-1]["loss"]) == (7, 0.5)


def test_a_loss_that_is_nan_is_null_in_its_line(tmp_path: Path) -> None:
    page, lines, said = reported(tmp_path, "report(step=1, loss=float('nan'), x=float('inf'))")
    assert page.loss == math.inf
    (progress,) = rank_progress({0: page}, {})
    assert (progress.loss, progress.loss_is_odd) == (None, True)
    assert (lines[0]["loss"], lines[0]["metrics"], said) == (None, {"x": None}, "")


def test_a_number_that_cannot_be_had_is_said_and_left_out(tmp_path: Path) -> None:
    """A tensor without memory, or on a device that has failed."""
    lost = "class Lost:\n    def item(self):\n        raise RuntimeError('the device is gone')\n"
    page, lines, said = reported(tmp_path, lost + "report(step=1, loss=Lost(), x=Lost())\nreport(step=2, loss=0.5)")
    assert (page.step, [line["step"] for line in lines]) == (2, [2])
    assert [text.split("=")[0].split()[-1] for text in said.splitlines()] == ["loss", "x"]


def test_names_of_figures_may_hold_anything(tmp_path: Path) -> None:
    odd = ["val/top 5", "a\nb", 'q"uo\\te', "\x1b[31mred", "größe", "\ud800", "", "step.", "\u2028"]
    _, lines, said = reported(tmp_path, f"report(step=1, loss=0.5, **{{name: 1.0 for name in {odd!r}}})")
    assert (lines[0]["metrics"], said) == (dict.fromkeys(odd, 1.0), "")


def test_threads_and_handlers_of_signals_may_report(tmp_path: Path) -> None:
    """No line is torn or lost: those of the main thread are all there, whoever adds figures to the newest one."""
    text = (
        "import signal, threading\n"
        "signal.signal(signal.SIGALRM, lambda *_: report(interrupted=1))\n"
        "done = threading.Event()\n"
        "def beside(name):\n    while not done.is_set():\n        report(**{name: 1.0})\n"
        "sys.setswitchinterval(1e-5)\n"
        "threads = [threading.Thread(target=beside, args=(name,)) for name in 'ab']\n"
        "report(step=1, loss=1.0)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "for thread in threads:\n    thread.start()\n"
        "for step in range(2, 600):\n    report(step=step, loss=step)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "done.set()\n"
        "for thread in threads:\n    thread.join()\n"
    )
    page, lines, said = reported(tmp_path, text)
    assert [(line["step"], line["loss"]) for line in lines] == [(step, step) for step in range(1, 600)]
    assert (page.step, said) == (599, "")


def test_steps_that_go_back_are_shown_and_cost_no_line(tmp_path: Path) -> None:
    """Steps of an epoch, say: what is written stays."""
    text = "for step in (1, 2, 3, 1, 2, 3, 4):\n    report(step=step, loss=step)"
    page, lines, said = reported(tmp_path, text)
    assert page.step == 4
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert said.count("report how many steps of the whole training are done") == 1


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "mine").write_text('{"mine": 1}\n')
    (tmp_path / "checkpoints" / "metrics.jsonl").symlink_to(tmp_path / "mine")
    said = reported(tmp_path, "report(step=1, loss=1.0)\nreport(step=2, loss=1.0)").said
    assert "is a symbolic link, and is left alone" in said
    assert (tmp_path / "mine").read_text() == '{"mine": 1}\n'


def test_processes_that_a_rank_starts_report_nothing(tmp_path: Path) -> None:
    """A data loader's, forked; and a program, whose steps would overwrite the rank's."""
    program = "from trainmaster_trainer import session; session.report(step=99)"
    text = (
        "report(step=5, loss=1.0)\nif os.fork() == 0:\n    report(step=77, loss=9.0)\n    os._exit(0)\nos.wait()\n"
        f"import subprocess\nsubprocess.run([sys.executable, '-c', {program!r}], check=True)\n"
    )
    page, lines, _ = reported(tmp_path, text)
    assert (page.step, len(lines)) == (5, 1)


def test_a_program_that_a_shell_starts_again_reports(tmp_path: Path) -> None:
    """The one before it has ended."""
    program = "from trainmaster_trainer import session; session.report(step=int(sys.argv[1]))".replace(
        "from", "import sys; from", 1
    )
    text = f"import subprocess\nfor n in '12':\n    subprocess.run([sys.executable, '-c', {program!r}, n], check=True)"
    assert reported(tmp_path, text).page.step == 2


COUNTING = "from trainmaster_trainer import script_progress\ncounted = script_progress.of_this_process(True).counted\n"


def test_who_reports_takes_the_page_from_one_that_only_counts(tmp_path: Path) -> None:
    """Of several processes that train together, the one that reports need not be the first that has taken a step."""
    text = (
        "(ours, theirs), (told, tells) = os.pipe(), os.pipe()\n"
        "if os.fork() == 0:\n"
        + "".join(f"    {line}\n" for line in COUNTING.splitlines())
        + "    for _ in range(5):\n        counted(None)\n    os.write(tells, b'.')\n    os.read(ours, 1)\n"
        "    counted(None)\n    os._exit(0)\n"
        "os.read(told, 1)\nreport(step=4, loss=0.5)\nos.write(theirs, b'.')\nos.wait()\n"
    )
    page, lines, said = reported(tmp_path, text)
    assert (page.step, page.loss, len(lines), said) == (4, 0.5, 1, "")


AFTER_25 = {
    "a new loop": ("report(step=1)\nreport(step=2, total=10, loss=1)", 27, 35),
    "... that reports seldom": (f"{COUNTING}for _ in range(10):\n    counted(None)\nreport(step=10)", 35, 0),
    "one that has loaded its step": ("report(step=21)", 21, 0),
    "... and goes on": ("report(step=25)\nreport(step=26, total=30)", 26, 30),
    "new optimizers": (f"{COUNTING}counted(1)\ncounted(None)", 27, 0),
    "... without a count": (f"{COUNTING}counted(None)", 26, 0),
    "an optimizer that was loaded": (f"{COUNTING}counted(21)\ncounted(None)", 22, 0),
}


@pytest.mark.parametrize(("text", "step", "total"), AFTER_25.values(), ids=AFTER_25.keys())
def test_a_program_after_another_one_goes_on_from_its_steps(tmp_path: Path, text: str, step: int, total: int) -> None:
    """Unless it says itself where it is, as one that a shell starts again and again until it succeeds."""
    first = BEGINNING + "report(step=5, loss=2)\nreport(step=25)"
    before = f"import subprocess\nsubprocess.run([sys.executable, '-c', {first!r}], check=True)\n"
    page, _, said = reported(tmp_path, before + text)
    assert (page.step, page.total_steps, page.resumed_step, said) == (step, total, 5, "")
