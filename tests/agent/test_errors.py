"""A rank's last words, and what the agent makes of a death."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from trainmaster_trainer.agent import errors, evidence


def fail(text: str) -> None:
    raise ValueError(text)


def caught(action: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught_one:  # noqa: PT011 whichever it is
        action()
    return caught_one.value


def raise_one(text: str = "no good") -> BaseException:
    return caught(lambda: fail(text))


def test_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "error"
    errors.write(str(path), raise_one())
    report = evidence.read_error(path)
    assert report is not None
    assert (report.type, report.message) == ("ValueError", "no good")
    assert report.frame.startswith(f"{__file__}:")
    assert report.frame.endswith(" in fail")
    assert "raise ValueError(text)" in report.traceback


def test_torchs_tools_can_read_ours(tmp_path: Path) -> None:
    path = tmp_path / "error"
    errors.write(str(path), raise_one())
    content = json.loads(path.read_text())
    assert content["message"]["message"] == "ValueError: no good"
    assert "raise ValueError(text)" in content["message"]["extraInfo"]["py_callstack"]
    assert content["message"]["extraInfo"]["timestamp"].isdigit()


def test_what_torch_wrote_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "error"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    get_error_handler().record_exception(raise_one())
    report = evidence.read_error(path)
    assert report is not None
    assert (report.type, report.message) == ("ValueError", "no good")
    assert report.time > 0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"message": 3}', '{"trainmaster": {"type": 3}}', "\0"])
def test_anything_else_is_no_report(tmp_path: Path, content: str) -> None:
    (tmp_path / "error").write_text(content)
    assert evidence.read_error(tmp_path / "error") is None


def test_long_texts_are_cut(tmp_path: Path) -> None:
    errors.write(str(tmp_path / "error"), raise_one("x" * 100_000))
    report = evidence.read_error(tmp_path / "error")
    assert report is not None
    assert (len(report.message), len(report.traceback)) == (1024, 8192)


def test_the_innermost_frame_of_the_users_own_code() -> None:
    error = caught(lambda: json.loads("{"))
    assert errors.frame(error).startswith(f"{__file__}:")
    assert "json" in traceback.extract_tb(error.__traceback__)[-1].filename


def test_a_syntax_error_has_a_place() -> None:
    error = caught(lambda: compile("\n1 +", "/work/train.py", "exec"))
    assert errors.frame(error) == "/work/train.py:2"


def a_death(tmp_path: Path, **more: object) -> tuple[evidence.Death, dict[int, Path]]:
    facts = {"attempt": 1, "rank": 0, "step": 5, "end": {"code": 1}, "signalled": None, "kills_before": 0}
    return evidence.Death(**{**facts, **more}), {rank: tmp_path / f"error-{rank}" for rank in (0, 1)}  # type: ignore[arg-type]


def test_the_earliest_error_is_the_cause(tmp_path: Path) -> None:
    death, files = a_death(tmp_path)
    errors.write(str(files[1]), raise_one("the cause"))
    errors.write(str(files[0]), raise_one("connection closed by peer"))
    event = evidence.judge(death, files)
    assert event.error is not None
    assert (event.rank, event.cause, event.error.message) == (0, 1, "the cause")


def test_a_silent_death_is_not_explained_by_others_errors(tmp_path: Path) -> None:
    death, files = a_death(tmp_path, end={"signal": "SIGKILL"})
    errors.write(str(files[1]), raise_one("connection closed by peer"))
    event = evidence.judge(death, files)
    assert (event.cause, event.error, event.signal, event.ours) == (0, None, "SIGKILL", False)


def test_an_end_after_our_signal_is_ours(tmp_path: Path) -> None:
    death, files = a_death(tmp_path, end={"signal": "SIGTERM"}, signalled=1e12)
    assert evidence.judge(death, files).ours


def test_an_error_before_our_signal_is_not_ours(tmp_path: Path) -> None:
    death, files = a_death(tmp_path, signalled=1e12)
    errors.write(str(files[0]), raise_one())
    assert not evidence.judge(death, files).ours


def test_out_of_memory_is_read_from_the_kernels_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version_2 = tmp_path / "memory.events"
    version_2.write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n")
    monkeypatch.setattr(evidence, "_own_groups", lambda: ["0::/"])
    monkeypatch.setattr(evidence, "_GROUPS", tmp_path)
    killed, files = a_death(tmp_path, end={"signal": "SIGKILL"})
    assert evidence.judge(killed, files).out_of_memory
    version_2.write_text("oom_kill 0\n")
    assert not evidence.judge(killed, files).out_of_memory


def test_out_of_memory_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_own_groups", lambda: ["4:memory:/pod/container", "1:name=systemd:/"])
    monkeypatch.setattr(evidence, "_GROUPS", tmp_path)
    assert evidence.out_of_memory_kills() == 0
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert evidence.out_of_memory_kills() == 3
