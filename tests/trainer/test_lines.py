"""How far metrics.jsonl is good, whatever its length and wherever it is torn."""

import json
from pathlib import Path

import pytest
from trainmaster_trainer.lines import METRICS, MetricsEnd, end_of_lines, text_up_to
from trainmaster_trainer.metrics import Metrics

MANY = 5000  # more than a block of lines


def line_of(step: int) -> bytes:
    return json.dumps({"step": step, "loss": 0.5}).encode() + b"\n"


def write(folder: Path, lines: list[bytes]) -> None:
    (folder / METRICS).write_bytes(b"".join(lines))


@pytest.mark.parametrize("trusted", [0, 1, 17, 2500, 4990, MANY, 2 * MANY])
@pytest.mark.parametrize("step", [0, 1, 2501, 4995, MANY, 2 * MANY])
def test_lines_up_to_a_step_are_found_wherever_the_checkpoint_was(tmp_path: Path, step: int, trusted: int) -> None:
    lines = [line_of(step) for step in range(1, MANY + 1)]
    write(tmp_path, lines)
    kept = min(step, MANY)
    assert end_of_lines(tmp_path, step, trusted) == MetricsEnd(sum(map(len, lines[:kept])), kept)


@pytest.mark.parametrize("bad", [b"\0" * 40 + b"\n", b'{"step": 4, "lo\n', b"[]\n", b'{"step": 4, "evaluation": {}}\n'])
def test_what_is_torn_after_the_checkpoint_ends_the_lines(tmp_path: Path, bad: bytes) -> None:
    lines = [line_of(1), line_of(2), line_of(3), bad, line_of(5)]
    write(tmp_path, lines)
    for trusted in (0, 1, 3):
        assert end_of_lines(tmp_path, 9, trusted) == MetricsEnd(sum(map(len, lines[:3])), 3)


def test_lines_end_where_two_attempts_have_written(tmp_path: Path) -> None:
    for odd in (2, 3):
        lines = [line_of(1), line_of(3), line_of(odd), line_of(4)]
        write(tmp_path, lines)
        for trusted in (0, 1):
            assert end_of_lines(tmp_path, 9, trusted) == MetricsEnd(sum(map(len, lines[:2])), 3)


def test_what_was_on_the_disk_before_the_checkpoint_is_not_read_again(tmp_path: Path) -> None:
    lines = [b"not looked at\n"] + [line_of(step) for step in range(2, MANY + 1)]
    write(tmp_path, lines)
    assert end_of_lines(tmp_path, MANY, trusted=MANY - 1) == MetricsEnd(sum(map(len, lines)), MANY)
    assert end_of_lines(tmp_path, MANY) == MetricsEnd()


@pytest.mark.parametrize("tail", [b"", b'{"step": 4, "lo', b"\0\0\0\0"])
def test_the_text_is_that_of_whole_lines(tmp_path: Path, tail: bytes) -> None:
    assert text_up_to(tmp_path, 3) == b""
    write(tmp_path, [line_of(1), line_of(2), line_of(3), tail])
    assert text_up_to(tmp_path, 2) == line_of(1) + line_of(2)
    assert text_up_to(tmp_path, 9) == line_of(1) + line_of(2) + line_of(3)


def test_a_loss_that_is_told_again_and_differs_says_what_was_told_before(tmp_path: Path) -> None:
    told = Metrics(tmp_path, 1, 0)
    for step, loss in enumerate((0.5, 0.25, float("nan"), 0.125), start=1):
        told.add(step, loss=loss)
    told.flush()
    again = Metrics(tmp_path, 2, 1)
    for step, loss in enumerate((0.25, 0.75, 1.0, 2.0), start=2):
        again.add(step, loss=loss)
    again.flush()
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [line.get("told_before", "equal") for line in lines] == ["equal", "equal", None, 0.125, "equal"]
    assert [line["loss"] for line in lines] == [0.5, 0.25, 0.75, 1.0, 2.0]
