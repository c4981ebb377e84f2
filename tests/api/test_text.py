"""YAML is read as kubectl reads it, and hostile YAML is refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from trainmaster.api import yaml_text
from trainmaster.api.document import load, load_file
from trainmaster.api.problem import Problem

# What `kubectl create --dry-run=server -o json` makes of each (kubectl 1.32, API server 1.36).
AS_KUBECTL: dict[str, Any] = {
    "1e-3": 0.001,
    "1e3": 1000,
    "1.0": 1,
    ".5": 0.5,
    "1.": 1,
    "+1": 1,
    "010": 8,
    "08": 8,
    "0o17": 15,
    "0x10": 16,
    "-0b11": -3,
    "1_000": 1000,
    "12:30": "12:30",
    "2001-01-01": "2001-01-01",
    "1.5.6": "1.5.6",
    "1e400": "1e400",
    "1e30": 1e30,
    "18446744073709551615": 18446744073709551615.0,
    "18446744073709551616": 18446744073709551616.0,
    "yes": True,
    "Off": False,
    "y": True,
    "~": None,
    "null": None,
    "nullable": "nullable",
    "'1'": "1",
    '"\\ud83d\\ude00"': "\U0001f600",
    '"yes"': "yes",
    "!!str 12": "12",
    "!!float 3": 3,
    "!!int 3": 3,
    "0.1": 0.1,
    "-.5e-1": -0.05,
    "0b": "0b",
    "1__0": 10,
}


@pytest.mark.parametrize(("written", "meant"), AS_KUBECTL.items(), ids=AS_KUBECTL.keys())
def test_values_as_kubectl_reads_them(written: str, meant: Any) -> None:
    """The same file must train the same way on a laptop and on a cluster."""
    (document,) = yaml_text.read(f"a: {written}\n".encode())

    assert not document.problems
    assert document.data == {"a": meant}
    assert type(document.data["a"]) is type(meant)


def test_keys_are_texts() -> None:
    """As kubectl makes them."""
    (document,) = yaml_text.read(b"1: a\non: b\n~: c\n1.5: d\n")

    assert document.data == {"1": "a", "true": "b", "~": "c", "1.5": "d"}


def test_aliases_and_merges() -> None:
    """Honest uses work: what stands beside << wins, and of a list of sources the first."""
    (document,) = yaml_text.read(b"a: &a {x: 1, v: 1}\nb: &b {v: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\nd: *a\n")

    assert document.data["c"] == {"x": 0, "v": 1, "z": 2}
    assert document.data["d"] == {"x": 1, "v": 1}
    assert document.marks["c", "z"] == (2, 14)


def problems(content: bytes) -> list[Problem]:
    loaded = load(content)
    assert isinstance(loaded, list), "the file was accepted"
    return loaded


LAUGHS = "\n".join(
    [
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
    ]
)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"a: b: c\n", 1, "not YAML: mapping values are not allowed here"),
        (b"a:\n\tb: 1\n", 2, "Use blanks in place of tabs"),
        (b"a: [1\nb: 2\n", 2, "not YAML"),
        (b"a: 'open\n", 2, "not YAML"),
        (b"a: *nobody\n", 1, "undefined alias"),
        (b"a: 1\na: 2\nkind: TrainingJob\n", 2, "a stands here a second time. Remove one"),
        (
            b"kind: TrainingJob\nn: 7\n",
            2,
            'n is a word for false in YAML, as kubectl reads it, and no name. Put it in quotes: "n"',
        ),
        (b"kind: TrainingJob\na: 1\x00\n", 1, "not text: special characters are not allowed"),
        (b"a: \xff\xfe\n", 1, "not text"),
        (LAUGHS.encode(), 1, "unfold to more than 20000 values"),
        (b"a: &a [*a]\n", 1, "an alias stands inside of what it stands for"),
        (b"[" * 100_000, 1, "nested too deeply"),
        (b"a: " * 50_000, 1, "not YAML"),
        (
            b"kind: TrainingJob\na: !!python/object/apply:os.system [ls]\n",
            2,
            "!!python/object/apply:os.system is not allowed",
        ),
        (b"kind: TrainingJob\na: !mine 1\n", 2, "the tag !mine is not allowed here. Remove it"),
        (b"kind: TrainingJob\na: !!binary aGk=\n", 2, "the tag !!binary is not allowed"),
        (b"kind: TrainingJob\na: !!int x\n", 2, "the tag !!int is not allowed"),
        (b"kind: TrainingJob\na: .nan\n", 2, "a number that JSON cannot hold"),
        (b"kind: TrainingJob\n? [a, b]\n: c\n", 2, "a key must be a word"),
        (b"kind: TrainingJob\n<<: 3\n", 2, "<< takes an object"),
        (b"a" * (yaml_text.MAX_BYTES + 1), 1, "larger than 256 KiB"),
        (b"--- a\n" * 30_000, 1, "not an object"),
        (b'kind: TrainingJob\na: "\\ud800"\n', 2, "half a character"),
        (b'kind: TrainingJob\n"\\x1b[31m": 1\n', 2, "there is no field \\x1b[31m here"),
        (b"a: " + b"9" * 200_000, 1, "kind is missing"),
    ],
)
def test_hostile_or_broken(content: bytes, line: int, words: str) -> None:
    """A clear refusal on the right line, in a second."""
    assert any(words in str(problem) and problem.line == line for problem in problems(content))


def test_a_hundred_megabytes_are_not_even_read(tmp_path: Path) -> None:
    """The file is sparse; what counts is that we stop."""
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(100 * 1024 * 1024)

    loaded = load_file(huge)

    assert isinstance(loaded, list)
    assert "larger than 256 KiB" in loaded[0].message


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fall(content: bytes) -> None:
    """Problems, not exceptions."""
    load(content)


@example("\n 1")
@given(st.text(alphabet="abk:&*!-[]{}<>|\"'#\n\t ?,1.e~_\\x\xa0", max_size=120))
def test_no_text_makes_it_fall(content: str) -> None:
    """Nearer to YAML than random bytes; and what is said of it may be printed."""
    loaded = load("kind: TrainingJob\n" + content)

    assert isinstance(loaded, list)
    assert all(str(problem).isprintable() for problem in loaded)
