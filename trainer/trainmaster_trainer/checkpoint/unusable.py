"""Report when no checkpoint is good: there are none, or all are bad.

Training that began at step 0 over bad ones would prune them and give up for good what a storage that is back, or a
version that reads their format, could still give. So this is an error, and nothing is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainmaster_trainer.checkpoint.layout import saved_steps, step_folder
from trainmaster_trainer.checkpoint.load import ROOM_FOR_OTHERS, Trusted, read
from trainmaster_trainer.checkpoint.manifest import glance, read_manifest
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.settings import Settings


def problem_of(settings: Settings, trusted: Trusted) -> str:
    """Return what is wrong with the checkpoints in the job's folder; "" if there are none that it may go on from."""
    folder, before = settings.checkpoints, settings.resume_before
    wanted = [step for step in saved_steps(folder) if before is None or step < before]
    bad = [step for step in wanted if _may_be_wanted(folder, step, trusted)]
    if not bad:
        return ""
    return none_is_good([step_folder(folder, step).name for step in bad], str(folder), _reason(folder, bad[0]))


def _may_be_wanted(folder: Path, step: int, trusted: Trusted) -> bool:
    """Return whether it is of no branch that is known to have been given up."""
    seen = glance(step_folder(folder, step), step)
    return seen is None or trusted(seen)


def _reason(folder: Path, step: int) -> str:
    try:
        manifest = read_manifest(step_folder(folder, step), step)
        if sum(shard.length for shard in manifest.shards) > ROOM_FOR_OTHERS:
            return "not good for this model, or not for all ranks"  # to find out more would take long
        read(folder, step)
    except CorruptCheckpointError as bad:
        return str(bad)
    return "not good for all ranks"


def none_is_good(names: Sequence[str], place: str, reason: str = "") -> str:
    """Return a sentence with a cure. `names`: the newest first."""
    why = f" ({reason})" if reason else ""
    return (
        f"none of the checkpoints in {place} can be used: {len(names)} are bad, the newest is {names[0]}{why}. "
        "Restore them, or take them away to begin at step 0."
    )
