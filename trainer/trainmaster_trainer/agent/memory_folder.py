"""Make the replica's folder in memory, where its ranks keep their snapshots: it outlives them, not the agent.

It lies in the scratch folder where that is in memory (on one machine it is, and is cleared even after a kill), else in
/dev/shm. Without either there is none, and a failure costs the steps since the last checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from trainmaster.wire.files import delete_folder

from trainmaster_trainer.agent.agent_settings import AgentSettings

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  the folder in it has mode 0700 and is made anew


def make(settings: AgentSettings) -> Optional[Path]:
    """Make and return an empty folder for this replica; None where none is wanted, or possible."""
    if settings.plan.memory_every == 0:
        return None
    scratch = Path(settings.scratch).resolve()
    in_memory = _SHARED_MEMORY in scratch.parents
    if in_memory and settings.parent_pid is None:  # else it is there; or the run was killed, and nobody would clear it
        scratch.mkdir(parents=True, exist_ok=True)
    folder = (scratch if in_memory else _SHARED_MEMORY) / "-".join(
        ("trainmaster-memory", settings.pod_uid.replace("/", "_"))
    )
    try:
        delete_folder(folder)
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    return folder


def remove(folder: Optional[Path]) -> None:
    """Give the memory back."""
    if folder is not None:
        delete_folder(folder)
