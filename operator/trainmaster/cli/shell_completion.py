"""Run `trainmaster completion SHELL`: print a script by which a shell completes commands, options and names.

The script is made of the parser, so it knows what the program knows, and starts no program when it completes.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.terminal import tell

_NAMES = "names of runs"  # what completes a NAME: the folders in .trainmaster/
_PLACES = {"NAME": _NAMES, "WHAT": _NAMES}


@dataclass(frozen=True)
class Command:
    """A command, with its options and what each of them takes: words to choose from, or None for a file."""

    name: str
    help: str
    options: dict[str, tuple[str, ...] | None]
    flags: tuple[str, ...]
    words: tuple[str, ...]
    takes_runs: bool


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run the command, and return its exit code."""
    tell(_SHELLS[options.shell](list(commands(parser))))
    return 0


def complete_for_kubectl() -> int:
    """Run `kubectl_complete-trainmaster WORD ...`, by which kubectl completes `kubectl trainmaster`: a word a line.

    The last word is the one to complete. The last line is whether kubectl offers files besides: `:0`, or not: `:4`.
    """
    from trainmaster.cli import main  # noqa: PLC0415 (main imports this module when it is asked for it)

    offered = _offered(list(commands(main._parser())), sys.argv[1:] or [""])  # noqa: SLF001
    tell([*(offered or ()), ":0" if offered is None else ":4"])
    return 0


def _offered(known: list[Command], words: list[str]) -> list[str] | None:
    """Return what may stand in the place of the last word; None where it is a file."""
    *before, word = words
    found = {command.name: command for command in known}
    if not before:
        return [name for name in found if name.startswith(word)]
    command = found.get(before[0])
    if command is None:
        return []
    if before[-1] in command.options:
        choices = command.options[before[-1]]
        return choices if choices is None else [one for one in choices if one.startswith(word)]
    runs = sorted(path.name for path in Path().glob(".trainmaster/*/")) if command.takes_runs else []
    given = [*command.words, *runs] if not word.startswith("-") else [*command.options, *command.flags]
    return [one for one in given if one.startswith(word)] or None


def commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """Yield the commands of a parser, those without a line of help left out."""
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way to ask for them)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            yield from (_command(name, helps[name], inner) for name, inner in action.choices.items() if name in helps)


def _command(name: str, told: str, parser: argparse.ArgumentParser) -> Command:
    taking: dict[str, tuple[str, ...] | None] = {}
    flags: list[str] = []
    words: list[str] = []
    takes_runs = False
    for action in parser._actions:  # noqa: SLF001
        choices = tuple(map(str, action.choices)) if action.choices else None
        if not action.option_strings:
            words += choices or ()
            takes_runs = takes_runs or action.metavar in _PLACES
        elif action.nargs == 0:
            flags += action.option_strings
        else:
            taking |= dict.fromkeys(action.option_strings, choices)
    return Command(name, told, taking, tuple(flags), tuple(words), takes_runs)


def _bash(known: list[Command]) -> list[str]:
    words = " ".join(command.name for command in known)
    lines = [
        "# bash completion of trainmaster: source <(trainmaster completion bash)",
        "_trainmaster() {",
        '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words="" runs="" run',
        "  COMPREPLY=()",
        "  if ((COMP_CWORD == 1)); then",
        f'    COMPREPLY=($(compgen -W "{words} --help --version" -- "$word"))',
        "    return",
        "  fi",
        '  case "${COMP_WORDS[1]} $before" in',
    ]
    for command in known:
        for option, choices in command.options.items():
            reply = f'$(compgen -W "{" ".join(choices)}" -- "$word")' if choices else '$(compgen -f -- "$word")'
            lines.append(f'    "{command.name} {option}") COMPREPLY=({reply}); return;;')
    lines += ["  esac", '  case "${COMP_WORDS[1]}" in']
    for command in known:
        given = " ".join([*command.options, *command.flags, *command.words])
        runs = " runs=yes" if command.takes_runs else ""
        lines.append(f'    {command.name}) words="{given}"{runs};;')
    return [
        *lines,
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "  [[ $word == -* ]] && return",
        "  if [[ $runs && -d .trainmaster ]]; then",
        "    while IFS= read -r run; do",
        '      [[ $run == "$word"* && -d .trainmaster/$run ]] && COMPREPLY+=("$run")',
        "    done < <(ls -1 .trainmaster 2>/dev/null)",
        "  fi",
        '  COMPREPLY+=($(compgen -f -- "$word"))',
        "}",
        "complete -o filenames -F _trainmaster trainmaster",
        "complete -o filenames -F _trainmaster kubectl-trainmaster",
    ]


def _zsh(known: list[Command]) -> list[str]:
    """Return the script of bash, which zsh can use by its own module."""
    head = [
        "#compdef trainmaster",
        "autoload -U +X compinit && compinit",
        "autoload -U +X bashcompinit && bashcompinit",
    ]
    return [*head, *_bash(known)]


def _fish(known: list[Command]) -> list[str]:
    lines = [
        "# fish completion of trainmaster: trainmaster completion fish | source",
        "complete -c trainmaster -n __fish_use_subcommand -f",
    ]
    for command in known:
        about = shlex.quote(command.help)
        seen = f"-n '__fish_seen_subcommand_from {command.name}'"
        lines.append(f"complete -c trainmaster -n __fish_use_subcommand -a {command.name} -d {about}")
        lines += [f"complete -c trainmaster {seen} {_fish_option(flag)}" for flag in command.flags]
        for option, choices in command.options.items():
            values = f"-x -a {shlex.quote(' '.join(choices))}" if choices else "-r"
            lines.append(f"complete -c trainmaster {seen} {_fish_option(option)} {values}")
        if command.words:
            lines.append(f"complete -c trainmaster {seen} -x -a {shlex.quote(' '.join(command.words))}")
        if command.takes_runs:
            lines.append(f"complete -c trainmaster {seen} -a '(ls .trainmaster 2>/dev/null)'")
    return lines


def _fish_option(option: str) -> str:
    return f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"


_SHELLS: dict[str, Callable[[list[Command]], list[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
