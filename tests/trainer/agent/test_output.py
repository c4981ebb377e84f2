"""Ranks' output: whole lines, nothing lost, nobody held up."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from trainmaster_trainer.agent.output import Output


class Rank:
    """The writing ends of one rank's pipes."""

    def __init__(self, output: Output, prefix: str) -> None:
        (source, end), (other_source, other_end) = os.pipe(), os.pipe()
        self.sources = source, other_source
        self.ends = end, other_end
        self._output = output
        output.add(*self.sources, prefix)

    def finish(self) -> None:
        """It ends."""
        for end in self.ends:
            os.close(end)
        self._output.finish(*self.sources)


def an_output(folder: Path, patience_seconds: float = 5.0) -> tuple[Output, Path]:
    path = folder / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    return Output(descriptor, descriptor, patience_seconds), path


def test_lines_of_several_ranks_are_whole_and_marked(tmp_path: Path) -> None:
    output, path = an_output(tmp_path)
    ranks = [Rank(output, f"[rank {number}] ") for number in range(3)]

    def talk(rank: Rank, text: bytes) -> None:
        for _ in range(300):
            os.write(rank.ends[0], text[:50])
            os.write(rank.ends[0], text[50:] + b"\n")
        rank.finish()

    texts = [bytes([ord("a") + number]) * 100 for number in range(3)]
    threads = [threading.Thread(target=talk, args=pair) for pair in zip(ranks, texts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output.close()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 900
    assert set(lines) == {b"[rank %d] %s" % (number, text) for number, text in enumerate(texts)}


def test_the_end_of_a_ranks_standard_error_is_told(tmp_path: Path) -> None:
    output, path = an_output(tmp_path)
    rank = Rank(output, "")
    os.write(rank.ends[0], b"no error\n")
    os.write(rank.ends[1], b"x" * 9000 + b"\nclear message\n")
    for end in rank.ends:
        os.close(end)
    said = output.finish_and_tell(*rank.sources)
    output.close()
    assert said.splitlines()[-1] == "clear message"
    assert len(said) <= 4096
    assert path.read_bytes().count(b"x") == 9000, "and it is passed on"


def test_last_words_without_a_line_end(tmp_path: Path) -> None:
    output, path = an_output(tmp_path)
    rank = Rank(output, "[r] ")
    os.write(rank.ends[0], b"one\ntw")
    os.write(rank.ends[1], b"Segmentation fault")
    rank.finish()
    output.say("bye")
    output.close()
    lines = path.read_text().splitlines()
    assert sorted(lines[:3]) == ["[r] Segmentation fault", "[r] one", "[r] tw"]
    assert lines[3] == "trainmaster agent: bye"


def test_one_rank_is_passed_on_as_it_is(tmp_path: Path) -> None:
    output, path = an_output(tmp_path)
    rank = Rank(output, "")
    os.write(rank.ends[0], b"10%\r20%\rno end")
    rank.finish()
    output.say("on a line of its own")
    output.close()
    assert path.read_bytes() == b"10%\r20%\rno end\ntrainmaster agent: on a line of its own\n"


def test_an_end_is_not_awaited_from_what_a_rank_left_behind(tmp_path: Path) -> None:
    output, path = an_output(tmp_path)
    rank = Rank(output, "")
    os.write(rank.ends[0], b"before")
    output.finish(*rank.sources)  # its writing ends are still open, as a daemon's would be
    output.close()
    assert path.read_bytes() == b"before"
    for end in rank.ends:
        os.close(end)


def test_a_reader_that_reads_no_more_holds_nobody_up() -> None:
    unread, target = os.pipe()
    output = Output(target, target, patience_seconds=0.2)
    rank = Rank(output, "")
    line = b"x" * 999 + b"\n"
    for _ in range(1000):  # far more than all pipes hold together: this would block for ever
        os.write(rank.ends[0], line)
    rank.finish()
    came = b""
    while b"agent: after\n" not in came:
        output.say("after")  # the one before may be lost too: nothing had been read until then
        came += os.read(unread, 1 << 16)
    output.close()
    assert len(came) < 1_000_000
    assert b"lines lost, nobody read this output" in came
    for descriptor in (unread, target):
        os.close(descriptor)
