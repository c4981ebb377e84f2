"""Followers read metrics.jsonl once, whatever grows, is cut off, is torn or is replaced."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster_trainer.trackers import tail
from trainmaster_trainer.trackers.points import Point, TrackedJob
from trainmaster_trainer.trackers.tail import FollowerState, Tail
from trainmaster_trainer.trackers.tensorboard import EventFiles


def subject(folder: Path, **more: object) -> TrackedJob:
    return TrackedJob("tensorBoard", {}, str(folder), "team/job", "uid", **more)  # type: ignore[arg-type]


def lines(*steps: int, attempt: int = 1) -> str:
    return "".join(f'{{"step": {step}, "loss": 0.5, "attempt": {attempt}, "time": {step}.0}}\n' for step in steps)


def steps_of(follows: Tail) -> list[int]:
    """The steps of all news, which are told."""
    found = []
    while not (news := follows.news()).is_empty:
        follows.note_told(news)
        found += [point.step for point in news.points]
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_each_line_is_news_once(file: Path) -> None:
    follows = Tail(subject(file.parent))
    assert steps_of(follows) == []
    file.write_text(lines(*range(1, 2501)))
    assert steps_of(follows) == [*range(1, 2501)]
    with file.open("a") as more:
        more.write(lines(2501) + '{"step": 2502, "lo')
    assert steps_of(follows) == [2501]
    with file.open("a") as more:
        more.write('ss": 1.0, "attempt": 1, "time": 1.0}\n')
    assert steps_of(follows) == [2502]


@pytest.mark.parametrize("rest", ["", lines(21, attempt=2), lines(*range(21, 41), attempt=2)])
def test_what_was_cut_off_is_told_once_more(file: Path, rest: str) -> None:
    """The file may have grown beyond its old length by the next look."""
    follows = Tail(subject(file.parent))
    file.write_text(lines(*range(1, 31)))
    steps_of(follows)
    file.write_text(lines(*range(1, 21)) + rest)
    news = follows.news()
    assert news.cut_after == 20
    assert [point.step for point in news.points] == [*range(21, 21 + rest.count("\n"))]
    follows.note_told(news)
    assert follows.news().is_empty


def test_the_last_line_of_a_script_may_get_more_figures(file: Path) -> None:
    follows = Tail(subject(file.parent, is_script=True))
    file.write_text(lines(1, 2))
    steps_of(follows)
    file.write_text(lines(1) + '{"step": 2, "loss": null, "metrics": {"f1": null}, "attempt": 1, "time": 2.0}\n')
    news = follows.news()
    assert news.cut_after == 1
    (point,) = news.points
    assert [*point.figures] == ["f1"], "a loss that was not reported is none"
    assert math.isnan(point.figures["f1"])


def test_marks_of_many_lines_stay_few_and_reach_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_MOST_MARKS", 20)
    follows = Tail(subject(file.parent))
    file.write_text(lines(*range(1, 5001)))
    steps_of(follows)
    assert len(follows.marks) <= 20
    file.write_text(lines(*range(1, 3001)))
    news = follows.news()
    assert news.cut_after is not None
    assert 0 < news.cut_after <= 3000


def test_what_no_training_writes_is_passed_over(file: Path) -> None:
    file.write_bytes(b"\0" * 100 + b"\n[1]\n{}\n" + b'{"step": "x"}\n' + lines(3).encode())
    assert steps_of(Tail(subject(file.parent))) == [3]


def test_the_next_follower_goes_on_where_this_one_was(file: Path, tmp_path: Path) -> None:
    follows = Tail(subject(file.parent))
    file.write_text(lines(*range(1, 11)))
    steps_of(follows)
    FollowerState("uid", "run-1", 2, follows.marks).write(tmp_path / "own" / "state.json")
    saved = FollowerState.read(tmp_path / "own" / "state.json")
    assert (saved.run, saved.attempt) == ("run-1", 2)
    again = Tail(subject(file.parent))
    again.marks = saved.marks
    assert steps_of(again) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"uid": 1, "run": 2, "attempt": "x", "marks": []}', "\0"])
def test_a_state_that_is_none_of_ours_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    assert FollowerState.read(tmp_path / "state.json") == FollowerState()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be larger than 4 KiB: as on a full disk, the first part of a write succeeds."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_event_files_on_a_full_disk_have_whole_records_only(tmp_path: Path) -> None:
    events = EventFiles(subject(tmp_path, parameters={"seed": "3"}))
    events.begin("")
    (file,) = (tmp_path / "tensorboard").iterdir()
    before = file.read_bytes()
    with pytest.raises(OSError, match="File too large"):
        events.tell([Point(step, 1, 0.0, {"loss": 1.0}) for step in range(1000)])
    assert file.read_bytes() == before
    events.tell([Point(1, 1, 0.0, {"loss": 1.0})])
    assert len(file.read_bytes()) > len(before)
