"""Bring a checkpoint out of an object store to each replica, and read it there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainmaster.wire.manifest import MAX_MANIFEST, ShardRecord

from trainmaster_trainer.checkpoint import layout, segments
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint, look_at, read
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote, SavedCheckpoint
from trainmaster_trainer.checkpoint.state import Shapes
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.lines import METRICS, end_of_lines
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


def on_the_way(remote: Remote, lineage: Lineage) -> list[SavedCheckpoint]:
    """Return the committed checkpoints that are of no branch that was given up, newest first."""
    return [one for one in remote.saved() if lineage.holds(one.attempt, one.step)]


def fetch(
    remote: Remote, saved: SavedCheckpoint, settings: Settings, group: Group, expected: Shapes, *, home: Path | None
) -> tuple[LoadedCheckpoint | None, str]:
    """Return one checkpoint, if all ranks find it good, and why it could not be fetched.

    `home`: the folder that gets the lines up to it, on the rank that has their file.
    """
    folder = settings.checkpoints / f"{layout.FETCHED}{settings.run_key}-{group.rank - group.local_rank}"
    problem = _download(remote, saved, folder, home, expected) if group.local_rank == 0 else ""
    found = "; ".join(text for text in group.gather(problem) if text)
    try:
        loaded, wrong = None, ""
        if not found:
            try:
                loaded = read(folder, saved.step, expected)
            except CorruptCheckpointError as bad:
                log.warning("Checkpoint of step %d: %s.", saved.step, bad)
            except ConfigurationError as error:
                wrong = str(error)  # raised on all ranks: it must not leave the peers waiting
        if any(group.gather(wrong)):
            raise ConfigurationError(next(text for text in group.gather(wrong) if text))
        is_good = group.all(loaded is not None)
        if is_good and home:
            segments.take(folder / METRICS, home)
        if not is_good and group.is_first:
            log.warning("%s cannot be used: %s", saved.name, found or "it is bad; trying the one before")
        return loaded if is_good else None, found
    finally:
        if group.local_rank == 0:
            layout.delete(folder)


def _download(remote: Remote, saved: SavedCheckpoint, folder: Path, home: Path | None, expected: Shapes) -> str:
    """Return what went wrong, or "". The lines up to it come along for the folder `home`, if that lacks them.

    Shards are fetched if the manifest is good, and as far as it says: who reads the folder tells what is bad.
    """
    layout.delete(folder)
    target = layout.step_folder(folder, saved.step)
    target.mkdir(parents=True)
    try:
        remote.fetch(f"{saved.name}/{layout.MANIFEST}", target / layout.MANIFEST, MAX_MANIFEST + 1)
        shards: Sequence[ShardRecord] = ()
        with suppress(CorruptCheckpointError, ConfigurationError):
            shards = look_at(folder, saved.step, expected).shards
        for shard in shards:
            remote.fetch(f"{saved.name}/{shard.file}", target / shard.file, shard.length)
        if home:
            segments.bring(remote, saved.name, home, folder / METRICS)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


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
