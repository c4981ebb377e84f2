"""PrivateFolder keeps checkpoints in a folder that each replica has for itself (`checkpoint_shared: false`)."""

from __future__ import annotations

from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.stores.folder import Folder
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


class PrivateFolder(Folder):
    """PrivateFolder is a store: the first rank of each replica writes all of every checkpoint."""

    shared = False

    def __init__(self, settings: Settings, group: Group) -> None:
        super().__init__(settings, group)
        self.writes = self.commits = group.local_rank == 0
        self._shard = layout.shard_name(0, 1)
