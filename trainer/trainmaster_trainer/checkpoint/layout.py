"""Lay out checkpoints in folders, with the few ways in which anything on the disk is changed.

    <folder>/step-00000050/manifest.json                        a checkpoint: complete by its name alone
                           shard-00000-of-00004.5ab1d2f0.safetensors
    <folder>/.saving-00000100-attempt-2-restart-0/              being written; dead once a later attempt has begun
    <folder>/.replaced-…                                        on its way out
    <folder>/.fetched-…                                         out of an object store, while it is read
    <folder>/attempt.json                                       the newest attempt that has begun: the fence

A folder gets its final name by one rename after everything in it has reached the disk, so a kill at any moment
leaves what was there before. Where a checkpoint of the same step stands already, the new shards go beside the old ones,
and then the manifest is replaced: that is the one rename.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainmaster.wire.files import delete_folder, read_bounded, sync_folder, write_all
from trainmaster.wire.files import replace as write_file
from trainmaster.wire.manifest import MANIFEST, MOST_ENTRIES, STEP_FOLDER, step_folder

from trainmaster_trainer.errors import ConfigurationError, PlaceTakenError, SupersededError

__all__ = ["MANIFEST", "step_folder", "sync_folder", "write_all", "write_file"]
_SAVING = ".saving-"
_REPLACED = ".replaced-"
FETCHED = ".fetched-"
FENCE = "attempt.json"
_MOST_FENCE = 1 << 16  # bytes


def saving_folder(folder: Path, step: int, run_key: str) -> Path:
    """Return the name of the same while it is written. Tries of the group never share one."""
    return folder / f"{_SAVING}{step:08d}-{run_key}"


def shard_name(rank: int, world_size: int) -> str:
    """Return a file name for one rank's shard that no other shard has, of whatever try to save the step."""
    return f"shard-{rank:05d}-of-{world_size:05d}.{uuid.uuid4().hex[:8]}.safetensors"


def saved_steps(folder: Path) -> list[int]:
    """Return the steps that have a folder, good or not, newest first.

    Raises:
        ConfigurationError: it has more entries than are looked at, so that a good one could be overlooked.
        OSError: it cannot be read now.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_ENTRIES + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    if len(names) > MOST_ENTRIES:
        raise ConfigurationError(
            f"spec.checkpoint.storage: {folder} has more than {MOST_ENTRIES} entries, and no more are looked at. Take "
            "away what is none of this job's."
        )
    found = map(STEP_FOLDER.fullmatch, names)
    return sorted((int(match[1]) for match in found if match), reverse=True)


def publish(temporary: Path, final: Path) -> None:
    """Make a complete folder the checkpoint of its step. One that has its name is as good as before until then."""
    if final.is_symlink() or not (final / MANIFEST).is_file():
        if final.exists() or final.is_symlink():  # it is no checkpoint
            remove(final)
        temporary.rename(final)
        sync_folder(final.parent)
        return
    shards = {*os.listdir(temporary)} - {MANIFEST}  # noqa: PTH208 names will do
    for name in shards:
        (temporary / name).rename(final / name)
    sync_folder(final)
    (temporary / MANIFEST).rename(final / MANIFEST)
    sync_folder(final)
    for name in {*os.listdir(final)} - {*shards, MANIFEST}:  # noqa: PTH208 likewise
        delete(final / name)
    delete(temporary)


def remove(path: Path) -> None:
    """Delete a folder so that no part of it is ever seen under its old name."""
    away = path.with_name(f"{_REPLACED}{path.name}-{uuid.uuid4().hex[:8]}")
    path.rename(away)
    delete(away)


def clean(folder: Path) -> None:
    """Delete what dead attempts left behind. Call it in one process, before any rank saves."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((_SAVING, _REPLACED, FETCHED)):
                delete(folder / entry.name)


def delete(path: Path) -> None:
    """Delete a file, a link, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        delete_folder(path)
    else:
        path.unlink(missing_ok=True)


class NamedObjects(Protocol):
    """NamedObjects is a store of objects by name, such as `remote.py` has."""

    def put(self, name: str, data: bytes) -> None:
        """Write an object."""

    def get(self, name: str, most: int) -> bytes | None:
        """Read an object of at most so many bytes; None if there is none."""


@dataclass
class Fence:
    """Fence keeps a superseded attempt from writing: the newest attempt that began is written in the folder.

    An attempt that begins writes itself down; before a checkpoint becomes visible, and before lines are appended, their
    writer looks whether a later attempt, or another job, has begun since, and ends if so.
    """

    folder: Path
    job_uid: str
    attempt: int
    remote: NamedObjects | None = None
    over: Exception | None = None  # why this process may not write any more

    def close(self) -> None:
        """Shut older attempts out: from here on they may not publish."""
        text = json.dumps({"job": self.job_uid, "attempt": self.attempt}).encode()
        if self.remote:
            self.remote.put(FENCE, text)
        else:
            write_file(self.folder / FENCE, text)

    def check(self) -> None:
        """Look who has begun since.

        Raises:
            SupersededError: a later attempt.
            PlaceTakenError: another job.
            OSError: that cannot be told now. Nothing may be written then, as somebody may have begun.
        """
        try:
            path, most = self.folder / FENCE, _MOST_FENCE
            text = self.remote.get(FENCE, most) if self.remote else read_bounded(path, most)
        except FileNotFoundError:
            text = None
        job, attempt = self.job_uid, self.attempt  # where nobody has written down who has begun
        try:
            if text is not None:
                written = json.loads(text)
                job, attempt = str(written["job"]), int(written["attempt"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise OSError(f"{FENCE} is damaged, so nobody can tell which attempt has begun last") from None
        if job != self.job_uid:
            self.over = PlaceTakenError(
                f"spec.checkpoint.storage: another job ({job or 'without uid'}) has begun where this one keeps its "
                "checkpoints; it may not write there any more. Give each a place of its own (path, objectStore.url)."
            )
        elif attempt > self.attempt:
            self.over = SupersededError(f"attempt {attempt} has begun; attempt {self.attempt} may not write any more")
        if self.over is not None:
            raise self.over

    def check_to_publish(self) -> None:
        """Do as `check`, with an error of the storage that says what follows from it."""
        try:
            self.check()
        except OSError as error:
            raise OSError(
                f"nothing is published while it cannot be told whether a later attempt has begun: {error}"
            ) from None
