"""Report when no checkpoint is good: there are none, or all are bad.

Training that began at step 0 over bad ones would prune them and give up for good what a storage that is back, or a
version that reads their format, could still give. So this is an error, and nothing is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster_trainer.checkpoint.layout import saved_steps, step_folder
from trainmaster_trainer.checkpoint.load import ROOM_FOR_OTHERS, Trusted, read
from trainmaster_trainer.checkpoint.manifest_check import glance, read_manifest
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.settings import Settings


def problem_of(settings: Settings, trusted: Trusted) -> str:
    """Return what is wrong with the checkpoints in the job's folder; "" if there are none that it may go on from."""
    folder, before = settings.checkpoints, settings.resume_before
    bad = []
    for step in saved_steps(folder):
        if before is None or step < before:
            seen = glance(step_folder(folder, step), step)
            if seen is None or trusted(seen):  # of no branch that is known to have been given up
                bad.append(step)
    if not bad:
        return ""
    newest, reason = step_folder(folder, bad[0]), "not good for all ranks"
    try:
        manifest = read_manifest(newest, bad[0])
        if sum(shard.length for shard in manifest.shards) > ROOM_FOR_OTHERS:
            reason = "not good for this model, or not for all ranks"  # to find out more would take long
        else:
            read(folder, bad[0])
    except CorruptCheckpointError as error:
        reason = str(error)
    return none_is_good([step_folder(folder, step).name for step in bad], str(folder), reason)


def none_is_good(names: Sequence[str], place: str, reason: str = "") -> str:
    """Return a sentence with a cure. `names`: the newest first."""
    why = f" ({reason})" if reason else ""
    return (
        f"none of the checkpoints in {place} can be used: {len(names)} are bad, the newest is {names[0]}{why}. "
        "Restore them, or take them away to begin at step 0."
    )
