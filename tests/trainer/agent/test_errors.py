"""A rank's last words, and what the agent makes of a death."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.utils.data
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from trainmaster.wire import codec, names
from trainmaster_trainer.agent import command, evidence, main_module, parent, rank_errors, rank_process
from typing_extensions import override


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
    rank_errors.write(str(path), raise_one())
    report = evidence.read_error(path)
    assert report is not None
    assert (report.type, report.message) == ("ValueError", "no good")
    assert report.frame.startswith(f"{__file__}:")
    assert report.frame.endswith(" in fail")
    assert "raise ValueError(text)" in report.traceback


def test_torchs_tools_can_read_ours(tmp_path: Path) -> None:
    path = tmp_path / "error"
    rank_errors.write(str(path), raise_one())
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


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"message": 3}', '{"trainmaster": {"type": 3}}', "\0", "[" * 100_000]
)
def test_anything_else_is_no_report(tmp_path: Path, content: str) -> None:
    (tmp_path / "error").write_text(content)
    assert evidence.read_error(tmp_path / "error") is None


def test_long_texts_are_cut(tmp_path: Path) -> None:
    rank_errors.write(str(tmp_path / "error"), raise_one("x" * 100_000))
    report = evidence.read_error(tmp_path / "error")
    assert report is not None
    assert (len(report.message), len(report.traceback)) == (1024, 8192)
    rank_errors.write(str(tmp_path / "error"), raise_one("x" * 5_000_000))
    assert (tmp_path / "error").stat().st_size < 200_000


def test_so_are_those_that_a_script_writes_itself(tmp_path: Path) -> None:
    """They travel with heartbeats, and the operator takes none of megabytes."""
    file = tmp_path / "error"
    report = dict.fromkeys(("type", "message", "frame", "traceback"), "x" * 100_000)
    file.write_text(json.dumps({rank_errors.MEMBER: {**report, "time": math.inf}}))
    found = evidence.read_error(file)
    assert found is not None
    assert len(codec.encode(found)) < 12_000
    assert found.time == 0.0
    more = {"py_callstack": "x" * 100_000, "timestamp": "NaN"}
    file.write_text(json.dumps({"message": {"message": "x" * 100_000, "extraInfo": more}}))
    found = evidence.read_error(file)
    assert found is not None
    assert len(codec.encode(found)) < 12_000
    assert found.time == 0.0


def test_an_error_file_that_is_too_large_is_told_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")
    assert evidence.read_error(tmp_path / "link") is None, "no link is followed"
    with (tmp_path / "error").open("wb") as file:
        file.truncate(1 << 40)
    found = evidence.read_error(tmp_path / "error")
    assert found is not None
    assert found.message == "its error file has more than 16 MiB and was not read"


class SpeechlessError(Exception):
    """It cannot even be said what it is."""

    @override
    def __str__(self) -> str:
        raise RecursionError


@pytest.mark.parametrize("closed", [False, True])
def test_an_end_that_cannot_be_said_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch, *, closed: bool) -> None:
    monkeypatch.delenv(names.ENV_ERROR_FILE, raising=False)
    if closed:
        log = io.StringIO()
        log.close()
        monkeypatch.setattr(sys, "stderr", log)
    assert rank_process._exit_code(SpeechlessError()) == 1
    error = SpeechlessError()
    monkeypatch.setattr(SpeechlessError, "trainmaster_configuration_error", True, raising=False)
    assert rank_process._last_words(error) == names.EXIT_BAD_CONFIGURATION


class Reading(torch.utils.data.Dataset[int]):
    """Fails in the worker process of a DataLoader."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 1

    @override
    def __getitem__(self, index: int) -> int:
        raise self.error


class OddError(Exception):
    """Cannot be made of a text alone, so torch raises a RuntimeError instead."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}\nand {second}")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(121, "Remote I/O error"), "OSError", "[Errno 121] Remote I/O error"),
        (OSError(28, "No space left on device"), "OSError", "[Errno 28] No space left on device"),
        (OddError("one thing", "another"), "OddError", "one thing\nand another"),
        (KeyError("x"), "KeyError", "'x'"),
        (AssertionError(), "AssertionError", ""),
    ],
)
def test_an_error_in_a_data_loaders_worker_is_that_error(
    tmp_path: Path, error: Exception, kind: str, message: str
) -> None:
    loader = torch.utils.data.DataLoader(Reading(error), num_workers=1)
    rank_errors.write(str(tmp_path / "error"), caught(lambda: list(loader)))
    report = evidence.read_error(tmp_path / "error")
    assert report is not None
    assert (report.type, report.message) == (kind, message)
    assert "in __getitem__" in report.traceback
    assert "in DataLoader worker process 0" in report.traceback


def test_words_like_a_data_loaders_are_left_alone(tmp_path: Path) -> None:
    rank_errors.write(str(tmp_path / "error"), raise_one("Caught Nothing in a net\nOriginal Traceback (lost)"))
    report = evidence.read_error(tmp_path / "error")
    assert report is not None
    assert (report.type, report.message[:14]) == ("ValueError", "Caught Nothing")


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.ENOMEM])
@pytest.mark.parametrize("where", ["chdir", "open_code", "execvp"])
def test_what_passes_is_no_bad_configuration(monkeypatch: pytest.MonkeyPatch, number: int, where: str) -> None:
    def fails(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(io if where == "open_code" else os, where, fails)
    if where == "execvp":
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    actions: dict[str, Callable[[], object]] = {
        "chdir": lambda: rank_process._enter_folder("/somewhere"),
        "open_code": lambda: main_module.run_script(command.Invocation(command.SCRIPT, "train.py", ())),
        "execvp": lambda: rank_process._execute(command.Invocation(command.EXECUTE, "train", ("train",))),
    }
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    error = caught(actions[where])
    assert isinstance(error, OSError)
    assert error.errno == number


def test_the_innermost_frame_of_the_users_own_code() -> None:
    error = caught(lambda: json.loads("{"))
    assert rank_errors.frame(error).startswith(f"{__file__}:")
    assert "json" in traceback.extract_tb(error.__traceback__)[-1].filename


def test_a_syntax_error_has_a_place() -> None:
    error = caught(lambda: compile("\n1 +", "/work/train.py", "exec"))
    assert rank_errors.frame(error) == "/work/train.py:2"


def a_death(tmp_path: Path, **more: object) -> tuple[evidence.Death, dict[int, Path]]:
    facts = {"attempt": 1, "rank": 0, "step": 5, "end": {"code": 1}, "signalled": None, "kills_before": 0}
    return evidence.Death(**{**facts, **more}), {rank: tmp_path / f"error-{rank}" for rank in (0, 1)}  # type: ignore[arg-type]


def test_the_earliest_error_is_the_cause(tmp_path: Path) -> None:
    death, files = a_death(tmp_path)
    rank_errors.write(str(files[1]), raise_one("the cause"))
    rank_errors.write(str(files[0]), raise_one("connection closed by peer"))
    event = evidence.judge(death, files)
    assert event.error is not None
    assert (event.rank, event.cause, event.error.message) == (0, 1, "the cause")


def test_a_silent_death_is_not_explained_by_others_errors(tmp_path: Path) -> None:
    death, files = a_death(tmp_path, end={"signal": "SIGKILL"})
    rank_errors.write(str(files[1]), raise_one("connection closed by peer"))
    event = evidence.judge(death, files)
    assert (event.cause, event.error, event.signal, event.ours) == (0, None, "SIGKILL", False)


def test_an_end_after_our_signal_is_ours(tmp_path: Path) -> None:
    death, files = a_death(tmp_path, end={"signal": "SIGTERM"}, signalled=1e12)
    assert evidence.judge(death, files).ours


def test_an_error_before_our_signal_is_not_ours(tmp_path: Path) -> None:
    death, files = a_death(tmp_path, signalled=1e12)
    rank_errors.write(str(files[0]), raise_one())
    assert not evidence.judge(death, files).ours


def test_out_of_memory_is_read_from_the_kernels_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version_2 = tmp_path / "memory.events"
    version_2.write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n")
    monkeypatch.setattr(evidence, "_own_groups", lambda: ["0::/"])
    monkeypatch.setattr(evidence, "_GROUPS", tmp_path)
    killed, files = a_death(tmp_path, end={"signal": "SIGKILL"})
    assert evidence.judge(killed, files).out_of_memory
    rank_errors.write(str(files[0]), raise_one("DataLoader worker (pid(s) 45) exited unexpectedly"))
    assert evidence.judge(a_death(tmp_path)[0], files).out_of_memory
    lost_its_parent = evidence.judge(a_death(tmp_path, end=parent.LOST)[0], files)
    assert lost_its_parent.out_of_memory
    assert lost_its_parent.error is not None
    assert "data workers too, had more memory than it may have" in lost_its_parent.error.message
    version_2.write_text("oom_kill 0\n")
    assert not evidence.judge(killed, files).out_of_memory


def test_out_of_memory_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_own_groups", lambda: ["4:memory:/pod/container", "1:name=systemd:/"])
    monkeypatch.setattr(evidence, "_GROUPS", tmp_path)
    assert evidence.out_of_memory_kills() == 0
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert evidence.out_of_memory_kills() == 3
