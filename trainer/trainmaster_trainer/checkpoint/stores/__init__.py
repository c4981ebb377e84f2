"""Hold the places where the checkpoints of a job may lie, one file each; `store.py` says what they have in common."""

from __future__ import annotations

from trainmaster_trainer.checkpoint.checkpointable import Checkpointable, Snapshots
from trainmaster_trainer.checkpoint.recall import Recalled
from trainmaster_trainer.checkpoint.remote import open_remote
from trainmaster_trainer.checkpoint.stores.folder import Folder
from trainmaster_trainer.checkpoint.stores.object_store import ObjectStore
from trainmaster_trainer.checkpoint.stores.private import PrivateFolder
from trainmaster_trainer.checkpoint.stores.replica_memory import ReplicaMemory
from trainmaster_trainer.checkpoint.stores.store import Source, Store
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


def open_store(settings: Settings, group: Group) -> Store:
    """Return the place of the job's own checkpoints.

    Raises:
        ConfigurationError: no retry could make writing there possible.
        StorageError: the object store does not answer.
    """
    remote = open_remote(settings)
    if remote is not None:
        return ObjectStore(settings, group, remote)
    return (Folder if settings.plan.checkpoint_shared else PrivateFolder)(settings, group)


def open_memory(settings: Settings, group: Group, training: Checkpointable, dataset: int) -> Source[Recalled] | None:
    """Return the memory of the replicas; None where no snapshots are taken. `dataset`: how many samples there are."""
    return ReplicaMemory(settings, group, dataset) if training.snapshots is not Snapshots.NONE else None
