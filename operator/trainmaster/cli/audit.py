"""`trainmaster audit DIR`: whether a run used every sample position exactly once, whatever restarts there were.

Which samples a step takes is a pure function of seed, batch size and step (trainer's data.py), a permutation per epoch.
So the proof is that the committed path has each step once and that its checkpoints agree with it on seed and batch.

Two strategies promise less, and then no more is said: ParameterServer with backupWorkers drops late shares, and each
worker of Gossip goes through its own share of the samples at its own pace.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from trainmaster.api.problem import reason
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD
from trainmaster.cli.terminal import complain, tell

EXIT_FAULTS = 1
_METRICS = "metrics.jsonl"
_MOST_SHOWN = 60  # bytes of a damaged line
_LINEAGE = "lineage.json"  # the step that each attempt went on from


class DamagedError(Exception):
    """A file is not as training writes it. The text begins with the line."""


def audit(folder: str) -> int:
    """The command. Returns its exit code: 0 each once, 1 not so, 2 nothing to look at."""
    try:
        home = next(path for path in (Path(folder) / "checkpoints", Path(folder)) if (path / _METRICS).is_file())
        lines = _lines(home / _METRICS)
    except (StopIteration, OSError) as error:
        why = f"cannot be read: {reason(error)}" if isinstance(error, OSError) else f"has no {_METRICS}"
        cure = "name the --workdir of a run, or the folder of its checkpoints (spec.checkpoint.storage.path)"
        complain(f"trainmaster: {folder} {why}; {cure}")
        return EXIT_BAD
    except DamagedError as error:
        tell([f"{home / _METRICS}:{error}"])
        return EXIT_FAULTS
    resumed = _resumed(home)
    first = _first_step(resumed, lines)
    manifests = [one for one in _manifests(home) if not _is_given_up(one, resumed)]
    if not lines and not manifests:
        complain(f"trainmaster: {folder}: nothing was trained, {_METRICS} has no step")
        return EXIT_BAD
    cursors = [manifest["cursor"] for manifest in manifests]
    problems = faults(lines, cursors, first)
    if problems:
        tell(problems)
        return EXIT_FAULTS
    if not lines:
        tell([f"No step was trained here: it began with another job's checkpoint of step {first - 1}."])
        return EXIT_GOOD
    attempts = len({line["attempt"] for line in lines})
    last = first + len(lines) - 1
    over = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    strategies = {str(manifest.get("strategy")) for manifest in manifests}
    tell([f"Steps {first} to {last}, each exactly once, over {over}: {_samples(lines, cursors, strategies)}"])
    return EXIT_GOOD


def _samples(lines: list[dict[str, Any]], cursors: list[dict[str, Any]], strategies: Collection[Any]) -> str:
    """What that means for the samples, in a sentence."""
    if "Gossip" in strategies:
        return (
            "as many samples as there should be. Each worker of Gossip goes through its own share of them at its own "
            "pace, so within an epoch some may have come twice and others not at all."
        )
    dropped = sum(line.get("dropped_samples", 0) for line in lines)
    if dropped:
        of = f" of {len(lines) * cursors[-1]['global_batch_size']}" if cursors else ""
        return (
            f"no sample repeated. {dropped}{of} were not trained on: they were in late shares, which "
            "spec.strategy.parameterServer.backupWorkers drops."
        )
    return "no sample lost or repeated."


def faults(lines: list[dict[str, Any]], cursors: Iterable[dict[str, Any]], first: int = 1) -> list[str]:
    """What contradicts that each position from step `first` on was used once, in sentences."""
    found = [
        f"Line {number} is of step {line['step']}: steps are lost or came twice."
        for number, line in enumerate(lines, start=1)
        if line["step"] != first + number - 1
    ]
    last = lines[-1]["step"] if lines else first - 1
    cursors = list(cursors)
    # 0 says that it was not known, as to a server that saves what it begins with before a worker is there.
    known = max((cursor.get("dataset", 0) for cursor in cursors), default=0)
    orders = set()
    for cursor in cursors:
        orders.add((cursor["seed"], cursor["global_batch_size"], cursor.get("dataset") or known))
        if cursor["samples"] != cursor["step"] * cursor["global_batch_size"]:
            found.append(f"The checkpoint of step {cursor['step']} counts {cursor['samples']} samples.")
        if cursor["step"] > last:
            found.append(f"The checkpoint of step {cursor['step']} is beyond the last line, that of step {last}.")
    if len(orders) > 1:
        found.append(f"The checkpoints differ in (seed, batch size, samples of the dataset): {sorted(orders)}.")
    return found


def _manifests(home: Path) -> list[dict[str, Any]]:
    """Those of the checkpoints. A bad one, which training passes over, is told of and left out."""
    found = []
    for path in sorted(home.glob("step-*/manifest.json")):
        try:
            manifest = json.loads(path.read_text())
            cursor = manifest["cursor"]
            numbers = [cursor[name] for name in ("step", "samples", "global_batch_size", "seed")]
            numbers.append(cursor.get("dataset", 0))
        except FileNotFoundError:  # the run goes on, and has just pruned it
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            numbers = [None]
        if _are_numbers(numbers):
            found.append(manifest)
        else:
            complain(f"{path.parent.name} is no good checkpoint, and says nothing here.")
    return found


def _resumed(home: Path) -> dict[int, int]:
    """The step that each attempt went on from."""
    try:
        resumed = json.loads((home / _LINEAGE).read_text())["resumed"]
        return {int(attempt): int(step) for attempt, step in resumed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _is_given_up(manifest: dict[str, Any], resumed: dict[int, int]) -> bool:
    """Whether a later attempt has gone on from an older step, as after a loss that is not a number."""
    attempt, step = manifest.get("attempt"), manifest["cursor"]["step"]
    return type(attempt) is int and any(later > attempt and step > begun for later, begun in resumed.items())


def _first_step(resumed: dict[int, int], lines: list[dict[str, Any]]) -> int:
    """1; of a run that began with another job's checkpoint (`resumeFrom`), the step after that."""
    begun = min(resumed.values(), default=0) + 1
    return begun if not lines or lines[0]["step"] == begun else 1


def _lines(path: Path) -> list[dict[str, Any]]:
    """Those of steps. The last one may be half written: the run goes on.

    Raises:
        DamagedError: one is not what training writes.
    """
    *whole, _ = path.read_bytes().split(b"\n")
    parsed = [_parsed(number, line) for number, line in enumerate(whole, start=1)]
    return [line for line in parsed if "loss" in line]


def _parsed(number: int, text: bytes) -> dict[str, Any]:
    try:
        line: dict[str, Any] = json.loads(text)
        figures = [line["step"], line["attempt"], line.get("dropped_samples", 0)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        figures = [None]
    if not _are_numbers(figures):
        raise DamagedError(f"{number}: this line is damaged: {text[:_MOST_SHOWN]!r}")
    return line


def _are_numbers(figures: Iterable[Any]) -> bool:
    return all(type(figure) is int for figure in figures)
