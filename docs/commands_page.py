"""`make generate` calls this: docs/reference/commands.md from the parsers of `trainmaster`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from trainmaster.cli import main

PAGE = Path(__file__).parent / "reference" / "commands.md"
_HEAD = """<!-- Generated from operator/trainmaster/cli by `make generate`. Do not edit. -->
# Commands

`trainmaster COMMAND --help` says the same. Commands that take the name of a job look for a run in `.trainmaster/` here
first, then for a job on the cluster of your kubeconfig.

"""


def commands_page() -> str:
    """Return the page: a table of all commands, then a section for each."""
    commands = [*_commands()]
    rows = [f"| [`{name}`](#{name}) | {_cell(short)} |" for name, short, _ in commands]
    sections = [line for name, _, parser in commands for line in _section(name, parser)]
    return _HEAD + "\n".join(["| command | what it does |", "|---|---|", *rows, "", *sections, main.EPILOG, ""])


def _commands() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield name, short help and parser of each command, in the order of `trainmaster --help`."""
    for action in main._parser()._actions:  # noqa: SLF001  argparse has no public way to its parts
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            shorts = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            for name, parser in action.choices.items():
                yield name, shorts.get(name, ""), parser


def _section(name: str, parser: argparse.ArgumentParser) -> list[str]:
    arguments = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]  # noqa: SLF001
    rows = [f"| {_written(action)} | {_cell(_help(action, parser))} |" for action in arguments]
    table = ["| argument | meaning |", "|---|---|", *rows, ""] if rows else []
    return [f"## {name}", "", *(parser.description or "").strip().splitlines(), "", *table]


def _written(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{value}`"
    names = ", ".join(action.option_strings)
    return f"`{names}`" if action.nargs == 0 else f"`{names} {value}`".replace("|", r"\|")


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return (action.help or "").replace("%(default)s", str(action.default)).replace("%(prog)s", parser.prog)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(commands_page())
