"""`trainmaster audit`: what it proves, and what it finds."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from trainmaster.cli.audit import Way, audit, faults
from trainmaster.wire.manifest import Cursor, Manifest, model_sha256
from trainmaster.wire.metric_lines import MetricLine


def lines(*steps: int) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 0.5, "attempt": 1 + step // 3} for step in steps]


def cursor(step: int, samples: int | None = None, seed: int = 1, dataset: int = 0) -> Cursor:
    return Cursor(step, 4 * step if samples is None else samples, 4, seed, dataset)


def manifest(step: int, strategy: str = "AllReduce", attempt: int = 1) -> bytes:
    return Manifest(step, attempt, 2, strategy, cursor(step), 1.0, model_sha256(()), ()).encode()


@pytest.mark.parametrize(
    ("steps", "cursors", "words"),
    [
        ((1, 2, 3), [cursor(2)], ""),
        ((1, 2, 2, 3), [], "Line 3 is of step 2"),
        ((1, 3), [], "Line 2 is of step 3"),
        ((1, 2), [cursor(2, samples=9)], "counts 9 samples"),
        ((1, 2), [cursor(4)], "beyond the last line"),
        ((1, 2, 3), [cursor(1), cursor(2, dataset=0), cursor(3, dataset=37)], ""),  # not known, and then it is
        ((1, 2, 3), [cursor(1, dataset=0), cursor(2, dataset=37), cursor(3, dataset=38)], "differ in (seed, batch"),
        ((1, 2), [cursor(1), cursor(2, seed=2)], "differ in (seed, batch size, samples of the dataset)"),
    ],
)
def test_what_is_found(steps: tuple[int, ...], cursors: list[Cursor], words: str) -> None:
    found = faults(Way.from_lines(MetricLine(step, 1, True) for step in steps), cursors)
    assert words in " ".join(found)
    assert bool(found) == bool(words)


def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "checkpoints" / "step-00000004"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(manifest(4))
    text = "".join(json.dumps(line) + "\n" for line in lines(1, 2, 3, 4))
    (tmp_path / "checkpoints" / "metrics.jsonl").write_text(text)
    assert audit(str(tmp_path)) == 0
    assert "Steps 1 to 4, each exactly once, over 2 attempts" in capsys.readouterr().out
    assert audit(str(tmp_path / "nowhere")) == 2
    cure = "or the folder of its checkpoints (spec.checkpoint.storage.path)"
    assert (
        capsys.readouterr().err
        == f"trainmaster: {tmp_path}/nowhere has no metrics.jsonl; name the --workdir of a run, {cure}\n"
    )


@pytest.mark.parametrize(
    ("strategy", "dropped", "words"),
    [
        ("AllReduce", 0, "over 2 attempts: no sample lost or repeated."),
        ("ParameterServer", 0, "no sample lost or repeated."),
        ("ParameterServer", 1, "no sample repeated. 2 of 16 were not trained on: they were in late shares"),
        ("Gossip", 0, "as many samples as there should be."),
    ],
)
def test_no_more_is_said_than_the_strategy_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str, dropped: int, words: str
) -> None:
    """Late shares that backup workers dropped, and the pace of each worker of Gossip."""
    (tmp_path / "step-00000004").mkdir()
    (tmp_path / "step-00000004" / "manifest.json").write_bytes(manifest(4, strategy))
    late = {"dropped_samples": dropped} if dropped else {}
    text = "".join(json.dumps({**line, **(late if line["step"] > 2 else {})}) + "\n" for line in lines(1, 2, 3, 4))
    (tmp_path / "metrics.jsonl").write_text(text)
    assert audit(str(tmp_path)) == 0
    told = capsys.readouterr().out
    assert words in told
    assert ("no sample lost" in told) == (strategy != "Gossip" and not dropped)


def test_a_run_that_began_with_anothers_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`resumeFrom`: its first line is that of the step after; what its folder says of where it began is believed."""
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(51, 52, 53)))
    assert audit(str(tmp_path)) == 1
    assert "Line 1 is of step 51" in capsys.readouterr().out
    (tmp_path / "lineage.json").write_text(json.dumps({"job": "uid", "resumed": {"1": 50, "2": 52}}))
    assert audit(str(tmp_path)) == 0
    assert "Steps 51 to 53, each exactly once" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["", "\0\0\0", "[]", "{}", '{"cursor": 4}', '{"cursor": {"step": 4}}', '{"cursor": {"step": "x"}}']
)
def test_a_bad_checkpoint_is_named_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(1, 2, 3, 4)))
    (tmp_path / "step-00000004").mkdir()
    (tmp_path / "step-00000004" / "manifest.json").write_text(text)
    assert audit(str(tmp_path)) == 0
    told = capsys.readouterr()
    assert "step-00000004 is no good checkpoint" in told.err
    assert "Steps 1 to 4, each exactly once" in told.out


def test_a_checkpoint_of_a_branch_that_was_given_up_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a loss that is not a number an attempt goes on from an older one, and the newer one lies there a while."""
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(1, 2, 3, 4, 5)))
    (tmp_path / "step-00000006").mkdir()
    (tmp_path / "step-00000006" / "manifest.json").write_bytes(manifest(6))
    assert audit(str(tmp_path)) == 1
    assert "beyond the last line" in capsys.readouterr().out
    (tmp_path / "lineage.json").write_text(json.dumps({"job": "uid", "resumed": {"1": 0, "2": 4}}))
    assert audit(str(tmp_path)) == 0


DAMAGED = {
    "bytes that are no text": b'{"step": 2, "loss": \xff, "attempt": 1}',
    "garbled": b'{"step": 2, "lo\0\0": 0.5, "attempt" 1}',
    "half a line": b'{"step": 2, "loss": 0.',
    "no step": b'{"loss": 0.5, "attempt": 1}',
    "no attempt": b'{"step": 2, "loss": 0.5}',
    "no object": b"[2]",
    "deep": b"[" * 100_000,
    "a step that is no number": b'{"step": "2", "loss": 0.5, "attempt": 1}',
    "an attempt that is none": b'{"step": 2, "loss": 0.5, "attempt": []}',
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes) -> None:
    first, _, third = (json.dumps(one).encode() for one in lines(1, 2, 3))
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([first, line, third, b""]))
    assert audit(str(tmp_path)) == 1
    assert f"{tmp_path}/metrics.jsonl:2: this line is damaged" in capsys.readouterr().out


def test_a_last_line_that_is_being_written_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (json.dumps(one) for one in lines(1, 2))
    (tmp_path / "metrics.jsonl").write_text(f"{first}\n{second[:9]}")
    assert audit(str(tmp_path)) == 0
    assert "Steps 1 to 1, each exactly once" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", '{"step": 0, "evaluation": {}, "attempt": 1}\n'])
def test_a_run_without_a_step_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    assert audit(str(tmp_path)) == 2
    told = capsys.readouterr()
    assert "nothing was trained" in told.err
    assert not told.out


def test_audit_believes_no_manifest_that_training_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the reader of training: here the digest is not that of the content."""
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(1, 2, 3, 4)))
    (tmp_path / "step-00000004").mkdir()
    (tmp_path / "step-00000004" / "manifest.json").write_bytes(manifest(4).replace(b'"seed": 1', b'"seed": 2'))
    assert audit(str(tmp_path)) == 0
    assert (
        "step-00000004 is no good checkpoint, and says nothing here: manifest.json does not" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "line", [b'{"step": 1, "loss": 1e999, "attempt": 1}', b'{"step": 1, "loss": NaN, "attempt": 1}']
)
def test_nor_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(line + b"\n")
    assert audit(str(tmp_path)) == 1
    assert "metrics.jsonl:1: this line is damaged" in capsys.readouterr().out


def test_nor_a_lineage(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(51, 52)))
    for text in ('{"job": "u", "resumed": {"1": 5e1}}', '{"job": "u", "resumed": {"1": 1e999}}', "[" * 100_000):
        (tmp_path / "lineage.json").write_text(text)
        assert audit(str(tmp_path)) == 1


def test_pipes_and_many_bad_checkpoints_are_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(1, 2)))
    for step in range(1, 40):
        (tmp_path / f"step-{step:08d}").mkdir()
        os.mkfifo(tmp_path / f"step-{step:08d}" / "manifest.json")
    os.mkfifo(tmp_path / "lineage.json")
    assert audit(str(tmp_path)) == 1
    assert "21 checkpoints are bad, and no more are looked at; take them away" in capsys.readouterr().out


def test_a_long_run_is_told_of_by_its_first_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(*[1] * 5000)))
    assert audit(str(tmp_path)) == 1
    assert len(capsys.readouterr().out.splitlines()) == 20


def test_only_so_many_checkpoints_are_looked_at_the_newest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines(1, 2, 3)))
    for step in (1, 2, 3):
        (tmp_path / f"step-{step:08d}").mkdir()
        (tmp_path / f"step-{step:08d}" / "manifest.json").write_bytes(manifest(step))
    monkeypatch.setattr("trainmaster.cli.audit._MOST_LOOKED_AT", 2)
    assert audit(str(tmp_path)) == 0
    assert "step-00000001 and older checkpoints are not looked at" in capsys.readouterr().err


def test_attempts_without_end_fill_no_memory() -> None:
    assert len(Way.from_lines(MetricLine(step, step, True) for step in range(1, 120_000)).attempts) == 100_000
