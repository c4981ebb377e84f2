"""Resume out of an object store: bring the newest checkpoint that all ranks find good to each replica.

The first rank of each replica downloads; every rank reads and verifies. What was downloaded is deleted again.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from trainmaster.wire.manifest import MAX_MANIFEST, ShardRecord

from trainmaster_trainer.checkpoint import layout, segments
from trainmaster_trainer.checkpoint import lineage as lineages
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import Loaded, look_at, read
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote, Saved, StorageError
from trainmaster_trainer.checkpoint.state import Shapes
from trainmaster_trainer.checkpoint.unusable import none_is_good
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.lines import METRICS, end_of_lines
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
Seen = TypeVar("Seen")


def find_remote(remote: Remote, settings: Settings, group: Group, expected: Shapes, lineage: Lineage) -> Loaded | None:
    """Return the newest good checkpoint of the training's way that is not doubted; None where there is none at all.

    Raises:
        ConfigurationError: it is good, but another model's.
        CorruptCheckpointError: there are some, and all are bad.
        StorageError: one that may be good could not be fetched.
    """
    here = trusted_in(remote, lineage, settings) if group.is_first else []
    loaded = _first_good(remote, here, settings, group, expected, own=True)
    if loaded is None and (names := group.broadcast([one.name for one in here])):
        raise CorruptCheckpointError(none_is_good(names, settings.plan.checkpoint_url or ""))
    return loaded


def on_the_way(remote: Remote, lineage: Lineage) -> list[Saved]:
    """Return the committed checkpoints that are of no branch that was given up, newest first."""
    return [one for one in remote.saved() if lineage.holds(one.attempt, one.step)]


def trusted_in(remote: Remote, lineage: Lineage, settings: Settings) -> list[Saved]:
    """Return the checkpoints on the training's way that the job is not told to doubt."""
    return [one for one in on_the_way(remote, lineage) if not settings.doubts(one.attempt, one.step)]


def find_foreign(remote: Remote, settings: Settings, group: Group, expected: Shapes) -> Loaded | None:
    """Return another job's checkpoint of the step that `resumeFrom` names, or its newest good one; None: there is none.

    Raises:
        ConfigurationError: it is good, but another model's.
        StorageError: one that may be good could not be fetched.
    """
    return find_while_it_changes(
        lambda: _foreign(remote, settings) if group.is_first else [],
        lambda here: _first_good(remote, here, settings, group, expected, own=False),
        group,
    )


def find_while_it_changes(
    look: Callable[[], Seen], find: Callable[[Seen], Loaded | None], group: Group
) -> Loaded | None:
    """Call `find` until it finds one, or rank 0 sees the same again: another job may prune what is being read."""
    seen: Seen | None = None
    while True:
        now = look()
        if group.broadcast(now == seen):
            return None
        seen = now
        loaded = find(now)
        if loaded is not None:
            return loaded


def _foreign(remote: Remote, settings: Settings) -> list[Saved]:
    """Return the other job's checkpoints, the newest first."""
    way, wanted = lineages.read(settings.checkpoints, None, remote), settings.plan.resume_step
    return [one for one in on_the_way(remote, way) if wanted in (None, one.step)]


def _first_good(
    remote: Remote, here: list[Saved], settings: Settings, group: Group, expected: Shapes, *, own: bool
) -> Loaded | None:
    """Return the first checkpoint of rank 0's list that all ranks find good; only bad ones are passed over.

    Raises:
        StorageError: one could not be fetched. That passes, and the steps since an older one would be lost for good.
    """
    for row in group.broadcast([dataclasses.astuple(one) for one in here]):
        loaded, unfetched = _fetch(remote, Saved(*row), settings, group, expected, own=own)
        if loaded is not None:
            return loaded
        if unfetched:
            raise StorageError(unfetched)
    return None


def _fetch(
    remote: Remote, saved: Saved, settings: Settings, group: Group, expected: Shapes, *, own: bool
) -> tuple[Loaded | None, str]:
    """Return one checkpoint, if all ranks find it good, and why it could not be fetched."""
    folder = settings.checkpoints / f"{layout.FETCHED}{settings.run_key}-{group.rank - group.local_rank}"
    home = settings.checkpoints if own and group.is_first else None
    problem = _download(remote, saved, folder, home, expected) if group.local_rank == 0 else ""
    found = "; ".join(text for text in group.gather(problem) if text)
    try:
        loaded, wrong = (None, "") if found else _read(folder, saved.step, expected)
        if any(group.gather(wrong)):
            raise ConfigurationError(next(text for text in group.gather(wrong) if text))
        bad = int(group.sum(torch.tensor([int(loaded is None)]))[0])
        if not bad and home:
            segments.take(folder / METRICS, home)
        if bad and group.is_first:
            log.warning("%s cannot be used: %s", saved.name, found or "it is bad; trying the one before")
        return None if bad else loaded, found
    finally:
        if group.local_rank == 0:
            layout.delete(folder)


def _download(remote: Remote, saved: Saved, folder: Path, home: Path | None, expected: Shapes) -> str:
    """Return what went wrong, or "". The lines up to it come along for the folder `home`, if that lacks them.

    Shards are fetched if the manifest is good, and as far as it says: who reads the folder tells what is bad.
    """
    layout.delete(folder)
    target = layout.step_folder(folder, saved.step)
    target.mkdir(parents=True)
    try:
        remote.fetch(f"{saved.name}/{layout.MANIFEST}", target / layout.MANIFEST, MAX_MANIFEST + 1)
        for shard in _shards(folder, saved.step, expected):
            remote.fetch(f"{saved.name}/{shard.file}", target / shard.file, shard.length)
        if home:
            segments.bring(remote, saved.name, home, folder / METRICS)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _shards(folder: Path, step: int, expected: Shapes) -> Sequence[ShardRecord]:
    """Return what is to be fetched besides the manifest."""
    try:
        return look_at(folder, step, expected).shards
    except (CorruptCheckpointError, ConfigurationError):
        return ()


def _read(folder: Path, step: int, expected: Shapes) -> tuple[Loaded | None, str]:
    """Return the checkpoint, or the text of a configuration error, which must not leave the peers waiting."""
    try:
        return read_or_tell(folder, step, expected), ""
    except ConfigurationError as error:
        return None, str(error)


def read_or_tell(folder: Path, step: int, expected: Shapes) -> Loaded | None:
    """Return a checkpoint; None, and a line in the log, where it is bad.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        return read(folder, step, expected)
    except CorruptCheckpointError as bad:
        log.warning("Checkpoint of step %d: %s.", step, bad)
        return None


def take_lines(remote: Remote, settings: Settings, lineage: Lineage, step: int) -> None:
    """Fetch the lines up to the checkpoint of `step`, which a new pod lacks that goes on from its peers' memory."""
    if end_of_lines(settings.checkpoints, step, trusted=step).step >= step:
        return
    fetched = settings.checkpoints / f"{layout.FETCHED}{settings.run_key}-{METRICS}"
    try:
        here = [one for one in on_the_way(remote, lineage) if one.step == step]
        if here:
            segments.bring(remote, here[0].name, settings.checkpoints, fetched)
    except OSError as error:
        log.warning("The lines of %s up to step %d could not be fetched: %s", METRICS, step, error)
        fetched.unlink(missing_ok=True)
    segments.take(fetched, settings.checkpoints)
