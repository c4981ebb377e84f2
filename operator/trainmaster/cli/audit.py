"""Run `trainmaster audit DIR`: check that a run used each sample position exactly once, whatever restarts there were.

Which samples a step takes is a pure function of seed, batch size and step (trainer's data.py), a permutation per epoch.
So it is enough to check that the committed path has each step once, and that its checkpoints agree with it on seed and
batch size.

Two strategies promise less, and the result says so: ParameterServer with backupWorkers drops late shares, and each
worker of Gossip goes through its own share of the samples at its own pace. So does a stream, whose order is its own.
"""

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainmaster.api.problem import reason
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD
from trainmaster.cli.terminal import complain, tell
from trainmaster.wire import lineage_file, metric_lines
from trainmaster.wire.files import open_to_read, read_bounded
from trainmaster.wire.manifest import (
    MANIFEST,
    MAX_MANIFEST,
    MOST_ENTRIES,
    SCRIPT,
    STEP_FOLDER,
    STREAM,
    Cursor,
    read_manifest,
)
from trainmaster.wire.metric_lines import METRICS, MetricLine
from trainmaster.wire.read_errors import CorruptCheckpointError

EXIT_FAULTS = 1
_MOST_SHOWN = 60  # bytes of a damaged line
_MOST_TOLD = 20  # faults
_MOST_BAD = 20  # checkpoints
_MOST_BAD_BYTES = 1 << 26  # of their manifests
_MOST_LOOKED_AT = 2000  # checkpoints: a job keeps at most 1000
_MOST_BYTES = 1 << 27  # of their manifests
_MOST_ATTEMPTS = 100_000  # that are told apart


class DamagedError(Exception):
    """A file is not as training writes it. The text begins with the line number."""


class TooManyBadError(Exception):
    """There are too many bad checkpoints to look at all of them."""


class AuditedCheckpoint(NamedTuple):
    """Hold what counts of one checkpoint: the whole manifests of all could fill the memory."""

    attempt: int
    step: int
    strategy: str
    cursor: Cursor
    is_script: bool
    is_stream: bool


@dataclass
class Way:
    """Summarize the committed path. The lines themselves are not kept: a run of weeks has millions."""

    first: int = 1  # the step that the first line should have
    count: int = 0
    last: int = 0
    dropped: int = 0
    attempts: set[int] = field(default_factory=set)
    breaks: list[str] = field(default_factory=list)

    @classmethod
    def from_lines(cls, lines: Iterable[MetricLine], begun: int = 0) -> "Way":
        """Return the summary of these lines. The run may go on from step `begun` of another job's checkpoint."""
        way = cls()
        for line in lines:
            if way.count == 0 and line.step == begun + 1:
                way.first = line.step
            if line.step != way.first + way.count and len(way.breaks) < _MOST_TOLD:
                way.breaks.append(f"Line {way.count + 1} is of step {line.step}: steps are lost or came twice.")
            way.count, way.last = way.count + 1, line.step
            way.dropped += line.dropped_samples
            if len(way.attempts) < _MOST_ATTEMPTS:
                way.attempts.add(line.attempt)
        if way.count == 0:
            way.first, way.last = begun + 1, begun
        return way


def audit(folder: str) -> int:
    """Run the command, and return its exit code: 0 each once, 1 not so, 2 nothing to look at."""
    try:
        home = next(path for path in (Path(folder) / "checkpoints", Path(folder)) if (path / METRICS).is_file())
        resumed = _resumed(home)
        way = Way.from_lines(_lines(home / METRICS), min(resumed.values(), default=0))
        saved = [one for one in _saved(home) if not _is_given_up(one, resumed)]
    except (StopIteration, OSError) as error:
        why = f"cannot be read: {reason(error)}" if isinstance(error, OSError) else f"has no {METRICS}"
        cure = "name the --workdir of a run, or the folder of its checkpoints (spec.checkpoint.storage.path)"
        complain(f"trainmaster: {folder} {why}; {cure}")
        return EXIT_BAD
    except DamagedError as error:
        tell([f"{home / METRICS}:{error}"])
        return EXIT_FAULTS
    except TooManyBadError as error:
        tell([f"{home}: {error}"])
        return EXIT_FAULTS
    if not way.count and not saved:
        complain(f"trainmaster: {folder}: nothing was trained, {METRICS} has no step")
        return EXIT_BAD
    cursors = [one.cursor for one in saved]
    problems = faults(way, cursors)
    tell(problems or [_proof(way, cursors, saved)])
    return EXIT_FAULTS if problems else EXIT_GOOD


def _proof(way: Way, cursors: list[Cursor], saved: Collection[AuditedCheckpoint]) -> str:
    if not way.count:
        return f"No step was trained here: it began with another job's checkpoint of step {way.first - 1}."
    attempts = len(way.attempts)
    over = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    strategies = {one.strategy for one in saved}
    script = any(one.is_script for one in saved)
    samples = (
        "which samples they took, the script knows."
        if script
        else _samples(way, cursors, strategies, any(one.is_stream for one in saved))
    )
    return f"Steps {way.first} to {way.last}, each exactly once, over {over}: {samples}"


def _samples(way: Way, cursors: list[Cursor], strategies: Collection[str], stream: bool) -> str:
    """Return in a sentence what the path means for the samples."""
    if "Gossip" in strategies:
        return (
            "as many samples as there should be. Each worker of Gossip goes through its own share of them at its own "
            "pace, so within an epoch some may have come twice and others not at all."
        )
    if stream:
        return (
            "so many samples of a stream, one after the other. That none of them was lost or repeated is what its "
            "dataset promises (by state_dict, or by giving the same whenever it is iterated)."
        )
    if way.dropped:
        of = f" of {way.count * cursors[-1].global_batch_size}" if cursors else ""
        return (
            f"no sample repeated. {way.dropped}{of} were not trained on: they were in late shares, which "
            "spec.strategy.parameterServer.backupWorkers drops."
        )
    return "no sample lost or repeated."


def faults(way: Way, cursors: Iterable[Cursor]) -> list[str]:
    """Return, in sentences, what contradicts that each position was used once; at most _MOST_TOLD."""
    found = list(way.breaks)
    cursors = list(cursors)
    # 0: it was not known, for example to a server that saves its first state before a worker has come.
    known = max((cursor.dataset for cursor in cursors), default=0)
    orders = {(cursor.seed, cursor.global_batch_size, cursor.dataset or known) for cursor in cursors}
    for cursor in cursors:
        if cursor.samples != cursor.step * cursor.global_batch_size:
            found.append(f"The checkpoint of step {cursor.step} counts {cursor.samples} samples.")
        if cursor.step > way.last:
            found.append(f"The checkpoint of step {cursor.step} is beyond the last line, that of step {way.last}.")
    if len(orders) > 1:
        found.append(
            f"The checkpoints differ in (seed, batch size, samples of the dataset): {sorted(orders)[:_MOST_TOLD]}."
        )
    return found[:_MOST_TOLD]


def _saved(home: Path) -> list[AuditedCheckpoint]:
    """Return what counts of the newest checkpoints, in order. A bad one, which training skips, is told and left out.

    Raises:
        TooManyBadError: there are more than _MOST_BAD bad ones, or they have more than _MOST_BAD_BYTES.
    """
    found: list[AuditedCheckpoint] = []
    bad, bytes_bad, bytes_good = 0, 0, 0
    with os.scandir(home) as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_ENTRIES) if entry.name.startswith("step-")]
    for name in sorted(names, key=lambda name: (len(name), name), reverse=True):
        path = home / name
        try:
            size = os.lstat(path / MANIFEST).st_size
            if len(found) == _MOST_LOOKED_AT or bytes_good + min(size, MAX_MANIFEST) > _MOST_BYTES:
                complain(f"{name} and older checkpoints are not looked at: there are too many for that.")
                break
            found.append(_look_at(path))
            bytes_good += size
        except FileNotFoundError:  # the run goes on and has just deleted it
            continue
        except (OSError, CorruptCheckpointError) as error:
            bad += 1
            bytes_bad += size if size <= MAX_MANIFEST else 0  # a larger one was not read
            if bad > _MOST_BAD or bytes_bad > _MOST_BAD_BYTES:
                raise TooManyBadError(f"{bad} checkpoints are bad, and no more are looked at; take them away") from None
            complain(f"{name} is no good checkpoint, and says nothing here: {error}.")
    return found[::-1]


def _look_at(path: Path) -> AuditedCheckpoint:
    step = STEP_FOLDER.fullmatch(path.name)
    if step is None:
        raise CorruptCheckpointError("no step has this name")
    manifest = read_manifest(path, int(step[1]))
    return AuditedCheckpoint(
        manifest.attempt,
        manifest.step,
        manifest.strategy,
        manifest.cursor,
        SCRIPT in manifest.scalars,
        STREAM in manifest.scalars,
    )


def _resumed(home: Path) -> dict[int, int]:
    """Return each attempt with the step from which it went on; empty if the lineage cannot be read."""
    try:
        return lineage_file.parse(read_bounded(home / lineage_file.LINEAGE, lineage_file.MOST_BYTES))[1]
    except (OSError, ValueError):
        return {}


def _is_given_up(one: AuditedCheckpoint, resumed: dict[int, int]) -> bool:
    """Return whether a later attempt went on from an older step, as after a loss that is not a number."""
    return any(later > one.attempt and one.step > begun for later, begun in resumed.items())


def _lines(path: Path) -> Iterator[MetricLine]:
    """Yield the lines of steps. An unfinished last line is left out: the run may still write it.

    Raises:
        DamagedError: a line is not what training writes.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        number = 0
        while (text := file.readline(metric_lines.MOST_BYTES)).endswith(b"\n") or len(text) == metric_lines.MOST_BYTES:
            number += 1
            try:
                line = metric_lines.parse(text)
            except ValueError:
                raise DamagedError(f"{number}: this line is damaged: {text[:_MOST_SHOWN].rstrip()!r}") from None
            if line.is_of_a_step:
                yield line
