"""What ranks print of their progress: found by the job's expressions, within bounds, and laid over their pages."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from trainmaster.wire.progress_page import ProgressPage
from trainmaster_trainer.agent.printed_figures import Reader, Said, Search, count, figure, overlaid
from trainmaster_trainer.agent.reactor import Reactor

TQDM = "\r 29%|##        | 29/100 [00:01<00:04, 17.3it/s, loss=0.52]\r 30%|###       | 30/100 [00:02<00:04]\n"
BAR = {"step": r"(\d+)/\d+ \[", "total": r"\d+/(\d+) \[", "loss": r"loss=([^\s,\]]+)"}


def search(**expressions: str) -> tuple[Search, list[str]]:
    said: list[str] = []
    return Search(expressions, said.append), said


def test_the_newest_line_that_has_it_counts() -> None:
    """A progress bar writes over itself."""
    found = search(**BAR)[0].newest(TQDM)
    assert found == {"step": "30", "total": "100", "loss": "0.52"}


def test_colours_are_no_part_of_a_line() -> None:
    """As of rich or loguru, where they are told to colour a pipe."""
    one, _ = search(loss="loss: ([0-9.]+)", step="step ([0-9]+)/")
    line = "\x1b[2K\x1b[32mstep \x1b[1;38;5;9m7\x1b[0m/30 \x1b[1mloss\x1b[0m: \x1b[31m0.25\x1b[0m\x1b[K\n"
    assert one.newest(line) == {"loss": "0.25", "step": "7"}


def test_of_a_long_line_its_beginning_and_its_end_are_looked_at() -> None:
    """A number that is cut in two at their bounds is none."""
    one, _ = search(loss="loss=([0-9.]+)", step="([0-9]+)/")
    assert one.newest("x" * 993 + " loss=0.1") == {"loss": "0.1"}
    assert one.newest("x" * 5000 + " loss=0.1") == {"loss": "0.1"}
    assert one.newest("loss=0.2" + "x" * 5000 + " loss=0.1") == {"loss": "0.2"}
    assert one.newest("x" * 993 + " loss=0.1" + "x" * 1000) == {}
    assert one.newest("x" * 2000 + "12/" + "x" * 998) == {}
    assert search(loss="^(x)")[0].newest("y" + "x" * 2000) == {}, "its end is no beginning"


@pytest.mark.parametrize("expression", ["(?:a+)+b(1)", "(?:a|a)*b(1)", "(?:.*)*,(1)", "a*a*a*a*a*a*a*b(1)"])
def test_an_expression_that_goes_back_and_forth_for_ever_is_dropped(expression: str) -> None:
    """The search is ended by an alarm, and the others go on."""
    one, said = search(loss=expression, step="step ([0-9]+)")
    assert one.newest("a" * 900 + "\nstep 7\n" + "a" * 900) == {"step": "7"}
    assert len(said) == 1
    assert "spec.training.progress.loss takes too long" in said[0]
    assert one.newest("a" * 900 + "\nstep 8") == {"step": "8"}
    assert len(said) == 1


def test_what_another_python_cannot_read_is_said_and_left_out() -> None:
    one, said = search(loss="(", step="step ([0-9]+)")
    assert one.newest("step 7") == {"step": "7"}
    assert "progress.loss is no regular expression" in said[0]


def test_a_group_that_took_no_part_finds_nothing() -> None:
    assert search(loss="a|loss=([0-9]+)")[0].newest("loss=5\na") == {"loss": "5"}


LOSSES = {
    "0.25": 0.25,
    "1e-3": 0.001,
    "-1.5E+2": -150.0,
    "0,523": 0.523,
    "12,5": 12.5,
    "1,5e-3": 0.0015,
    "1,234.5": 1234.5,
    "1,234,567": 1234567.0,
    "nan": math.inf,
    "inf": math.inf,
    "-Infinity": math.inf,
    "1,234": None,
    "1,2,3": None,
    "1.234,5": None,
    "0x10": None,
    "half": None,
    "": None,
}


@pytest.mark.parametrize("text", LOSSES)
def test_a_loss_is_the_number_that_was_printed_or_is_left_blank(text: str) -> None:
    """A comma may be the decimal one, or stand before each three digits; where it may be either, nothing is guessed."""
    found, expected = figure(text), LOSSES[text]
    assert found == expected


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("1,234", 1234), ("1e3", 1000), ("0,5", None), ("1,23", None), ("nan", None)]
)
def test_a_count_may_have_commas_before_each_three_digits(text: str, number: float | None) -> None:
    assert count(text) == number


def test_a_loss_that_becomes_nan_is_not_shown_as_the_last_number() -> None:
    said: list[tuple[int, Said]] = []
    printed = ["step 1 loss 0.5\n", "step 2 loss nan\n", "step 3 loss 1,234\n"]
    expressions = {"loss": "loss ([^ ]+)", "step": "step ([0-9]+)"}
    reader = Reader(Search(expressions, print), Reactor(), lambda *_: printed.pop(0), lambda *one: said.append(one))
    reader.expect(range(1))
    for _ in range(3):
        reader.look(0)
    assert [one.step for _, one in said] == [1, 2, 3]
    assert [math.isnan(one.start_seconds) for _, one in said] == [True, False, False]
    (_, first), *others = said
    assert first.loss == 0.5
    assert not any(math.isfinite(one.loss) for _, one in others)


COUNTED = ProgressPage(step=8, updated=5.0, phase="train", attempt=1, resumed_step=0)


def test_what_is_printed_lies_over_the_page() -> None:
    said = Said(loss=0.5, step=30, total=100, first=1, when=7.0, seconds=0.1, steps_per_second=10.0)
    page = overlaid(COUNTED, said, 32)
    assert (page.step, page.total_steps, page.loss, page.updated) == (30, 100, 0.5, 7.0)
    assert (page.samples_per_second, page.step_seconds, page.resumed_step) == (320.0, 0.1, 0)
    again = overlaid(COUNTED._replace(attempt=2, resumed_step=-1), replace(said, first=21), 0)
    assert again.resumed_step == 21, "the first line after a restart tells it"
    assert math.isnan(again.samples_per_second), "no batch size is known"
    started = replace(said, start_seconds=7.5)
    assert overlaid(COUNTED, started, 32).start_seconds == 7.5
    assert overlaid(COUNTED._replace(start_seconds=7.0), started, 32).start_seconds == 7.0, "counted steps come first"


def test_a_loss_alone_leaves_the_counted_steps() -> None:
    page = overlaid(COUNTED, Said(loss=0.5, when=7.0), 32)
    assert (page.step, page.loss, page.total_steps) == (8, 0.5, 0)
    assert overlaid(COUNTED, None, 32) == COUNTED


def test_a_program_that_writes_no_page_has_what_it_prints() -> None:
    page = overlaid(ProgressPage(attempt=1), Said(step=3, first=1, when=7.0), 0)
    assert (page.step, page.phase, page.updated, page.resumed_step) == (3, "train", 7.0, 0)
