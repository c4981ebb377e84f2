"""PrivateFolder keeps checkpoints in a folder that each replica has for itself (`checkpoint_shared: false`).

The newest that any replica has counts; the lowest rank that has it sends it, and the metrics up to it, to the others.
"""

from __future__ import annotations

import torch
from torch import Tensor
from trainmaster.wire import codec
from typing_extensions import override

from trainmaster_trainer import metrics
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint
from trainmaster_trainer.checkpoint.manifest_check import Manifest
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores.folder import Folder
from trainmaster_trainer.checkpoint.stores.store import Row, Told
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


class PrivateFolder(Folder):
    """PrivateFolder is a store: the first rank of each replica writes all of every checkpoint."""

    shared = False

    def __init__(self, settings: Settings, group: Group) -> None:
        super().__init__(settings, group)
        self.commits = self.writes = self.looks = group.local_rank == 0
        self._part = 0, 1

    @override
    def bring(self, newest: Row, told: Told) -> LoadedCheckpoint | None:
        step, group = int(newest[0]), self._group
        source = next(rank for rank, rows in enumerate(told) if rows and rows[0][0] == step)
        here = told[group.rank - group.local_rank]  # what this folder has: lines up to there were on the disk before
        own = int(here[0][0]) if here else 0
        metrics.spread(self._folder, step, source, group, trusted=own)
        loaded, self._mine = self._mine if group.rank == source else None, None
        manifest = codec.from_plain(
            Manifest, group.broadcast(codec.to_plain(loaded.manifest) if loaded else None, source)
        )
        tensors: dict[str, Tensor] = {}
        for name, (dtype, shape) in sorted(manifest.shapes().items()):
            tensor = loaded.state.tensors[name] if loaded else torch.empty(shape, dtype=getattr(torch, dtype))
            tensors[name] = tensor.contiguous()
            group.broadcast_tensor(tensors[name], source)
        return LoadedCheckpoint(manifest, State(tensors, manifest.scalars), is_here=own == step)

    @override
    def bring_lines(self, step: int, holder: int, durable: int, way: Lineage) -> None:
        metrics.spread(self._folder, step, holder, self._group, trusted=durable)
