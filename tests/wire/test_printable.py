"""Foreign text is one line of visible letters, wherever it is printed or logged."""

import io
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire.printable import (
    OneLineFormatter,
    printable,
    printable_in_colour,
    printable_without_colour,
)

EVIL = {
    "clipboard": "\x1b]52;c;cm0=\x07",
    "title": "\x1b]0;PWNED\x07",
    "clear": "\x1b[2J",
    "overwrite": "harmless\rFAKE",
    "line": "x\n2026-11-25 12:00:00,000 INFO trainmaster.lease: this operator leads (evil)",
    "c1": "\x9b2J\x85",
    "bidi": "\u202egpj.exe\u2066",
    "separators": "a\u2028b\u2029c",
    "nothing": "\0\x08\x7f\ufeff\u200b",
    "surrogate": "\ud800",
}


@pytest.mark.parametrize("name", EVIL)
def test_nothing_but_visible_letters_is_left(name: str) -> None:
    for shown in (make(EVIL[name]) for make in (printable, printable_in_colour, printable_without_colour)):
        assert shown.isprintable()
        assert shown.encode()


@given(st.text())
def test_of_any_text(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_letters_of_all_writings_stay_as_they_are() -> None:
    assert printable("größer, 学习率 0.1 → λ é 🙂") == "größer, 学习率 0.1 → λ é 🙂"


def test_the_end_of_a_long_text_is_left_out() -> None:
    assert printable("a" * 30, most=10) == "a" * 10 + "..."


def test_colours_stay_where_they_are_asked_for() -> None:
    red = "\x1b[1;31mred\x1b[0m\tx\x1b[2J"
    assert printable_in_colour(red).startswith("\x1b[1;31mred\x1b[0m ")
    assert printable_in_colour(red).endswith("x\\x1b[2J")
    assert "\x1b" not in printable_without_colour(red)
    assert "\x1b" not in printable_in_colour(f"\x1b[{'9' * 5000}m")  # rich would make a number of it


def _logged(ours: str = "") -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLineFormatter("%(levelname)s %(name)s: %(message)s", ours))
    logger = logging.getLogger("ours.log")
    logger.handlers, logger.propagate = [handler], False
    return logger, stream


def test_a_record_is_one_line_and_its_traceback_is_indented() -> None:
    logger, stream = _logged()
    try:
        int(EVIL["line"] + EVIL["clear"])
    except ValueError:
        logger.exception("job %s failed", EVIL["line"])
    first, *rest = stream.getvalue().rstrip("\n").split("\n")
    assert first == f"ERROR ours.log: job {printable(EVIL['line'])} failed"
    assert rest
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_records_of_a_user_are_left_as_they_are() -> None:
    logger, stream = _logged(ours="trainmaster")
    logger.warning("one\ntwo")
    assert stream.getvalue() == "WARNING ours.log: one\ntwo\n"
