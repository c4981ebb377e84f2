"""The help of the commands, what an unknown word is answered with, and the same program as a plugin of kubectl."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainmaster.cli import main as program
from trainmaster.cli.help_texts import GROUPS
from trainmaster.cli.main import main

from tools.onebox import binaries

from .commanding import Jobs


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    return next(action.choices for action in program._parser()._actions if isinstance(action.choices, dict))


def test_each_command_stands_in_one_group_and_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(name for _, names in GROUPS for name in names) == sorted(parsers())
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    for title, names in GROUPS:
        assert f"\n{title}:\n" in told
        assert all(f"\n  {name} " in told for name in names)
    for name, parser in parsers().items():
        examples = [line for line in parser.format_help().split("\n") if line.startswith("Example: ")]
        assert examples, name
        assert any(f"trainmaster {name}" in example for example in examples)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["repprt", "a"], "Did you mean report?"),
        (["run", "job.yaml", "--workdr", "x"], "Did you mean --workdir?"),
        (["list", "-o", "yml"], "Did you mean yaml?"),
        (["compare", "a", "--outpt=json"], "Did you mean --output?"),
    ],
)
def test_an_unknown_word_gets_the_one_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert meant in capsys.readouterr().err


def test_kubectl_finds_the_plugin(jobs: Jobs) -> None:
    jobs.create()
    binaries.ensure()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    completed = ("__complete", "trainmaster", "wait", "digits", "--t")
    called = (("trainmaster", "list"), "digits"), (("trainmaster", "--help"), "usage: kubectl trainmaster")
    for words, told in (*called, (completed, "--timeout\n:4")):
        run = subprocess.run(
            [str(binaries.path("kubectl")), *words],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert told in run.stdout
