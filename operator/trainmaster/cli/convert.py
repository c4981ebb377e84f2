"""Run `trainmaster convert WHAT`: print a TrainingJob for a job of another operator, or for a line of torchrun."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml

from trainmaster.api.document import load, read_file
from trainmaster.api.problem import Problem, reason
from trainmaster.cli.cluster import EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.terminal import complain, tell
from trainmaster.conversion import readers
from trainmaster.conversion.source import ConversionError


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    try:
        converted = _converted(options.what)
        text = yaml.dump(converted.job, Dumper=_JobDumper, sort_keys=False, allow_unicode=True, width=1000)
        if options.output:
            with Path(options.output).open("x") as file:  # what is there is never written over
                file.write(text)
        else:
            tell(text.rstrip("\n").split("\n"))
    except ConversionError as error:
        complain(f"trainmaster convert: {error}")
        return EXIT_INVALID
    except OSError as error:
        complain(f"trainmaster convert: {error.filename or options.what[0]}: {reason(error)}")
        return EXIT_INVALID
    complain(*(f"note: {path}: {note}" for path, note in converted.notes))
    complain(*_wrong(load(text), options.output))
    if options.output:
        tell([f"{options.output}: check it with trainmaster check {options.output}"])
    return EXIT_GOOD


class _JobDumper(yaml.SafeDumper):
    """Write texts of several lines as such, and no aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


_JobDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _converted(what: Sequence[str]) -> readers.Converted:
    if len(what) == 1 and " " not in what[0] and what[0] != "torchrun":
        return readers.of_file(read_file(Path(what[0])))
    try:
        words = shlex.split(what[0]) if len(what) == 1 else what
    except ValueError as error:
        raise ConversionError(f"the line cannot be split into words: {str(error).lower()}") from None
    return readers.of_command(words)


def _wrong(checked: object, output: str | None) -> list[str]:
    """Return what `check` would say of the result, and so is left for the user to write."""
    if not isinstance(checked, list):
        return []
    problems = [problem for problem in checked if isinstance(problem, Problem)]
    where = output or "the result"
    return [f"{where} is not valid yet:", *(f"  {problem}" for problem in problems)]
