"""ObjectStore keeps checkpoints in an object store (`remote.py`); a replica's folder is where they pass through.

To go on from one, the first rank of each replica downloads it; every rank reads and verifies. What was downloaded is
deleted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path

from trainmaster.wire.files import make_folder
from typing_extensions import override

from trainmaster_trainer.checkpoint import fetch, layout
from trainmaster_trainer.checkpoint.committer import Committer
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint
from trainmaster_trainer.checkpoint.manifest_check import Manifest
from trainmaster_trainer.checkpoint.remote import Remote, SavedCheckpoint, StorageError
from trainmaster_trainer.checkpoint.retention import bests_of
from trainmaster_trainer.checkpoint.state import Shapes, State
from trainmaster_trainer.checkpoint.stores.own import OwnStore
from trainmaster_trainer.checkpoint.stores.save_problems import STANDS, only_telling
from trainmaster_trainer.checkpoint.stores.store import Checkpoints, Row, Told
from trainmaster_trainer.checkpoint.unusable import none_is_good
from trainmaster_trainer.errors import PlaceTakenError, SupersededError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings


@dataclass
class ObjectSource(Checkpoints):
    """ObjectSource reads checkpoints of an object store: rank 0 looks which there are."""

    _settings: Settings
    _group: Group
    home: Path | None  # where lines of metrics go that are fetched with a checkpoint
    _remote: Remote = field(init=False)
    _expected: Shapes = field(default_factory=dict)
    _left: list[SavedCheckpoint] | None = None  # candidates that are not passed over
    _seen: list[str] = field(default_factory=list)  # names of all candidates that there were

    def look(self, way: Lineage) -> list[SavedCheckpoint]:
        """Return the committed checkpoints on the training's way that the job is not told to doubt, newest first."""
        return fetch.on_the_way(self._remote, way)

    @override
    def candidates(self, outline: State, way: Lineage) -> Sequence[Row]:
        """Return what rank 0 sees in the list of objects."""
        self._expected = outline.model_shapes()
        if self._left is None:
            self._left = self.look(way) if self._group.is_first else []
            self._seen = [one.name for one in self._left]
        rows = [astuple(one) for one in self._left]
        self._left = self._left or None
        return rows

    @override
    def bring(self, newest: Row, told: Told) -> LoadedCheckpoint | None:
        """Download it to each replica, and read it on every rank.

        Raises:
            StorageError: it could not be fetched. That passes, and the steps since an older one would be lost for good.
        """
        saved = SavedCheckpoint(*newest)
        loaded, unfetched = fetch.fetch(
            self._remote, saved, self._settings, self._group, self._expected, home=self.home
        )
        if loaded is None and unfetched:
            raise StorageError(unfetched)
        if loaded is not None:
            self._left = None
        elif self._left:
            self._left.remove(saved)
        return loaded


class ObjectStore(ObjectSource, OwnStore):
    """ObjectStore is a store: every rank puts its shard, and rank 0 the manifest."""

    def __init__(self, settings: Settings, group: Group, remote: Remote) -> None:
        OwnStore.__init__(self, settings, group, remote)
        self._remote = remote
        ObjectSource.__init__(self, settings, group, home=self._folder if self.commits else None)
        self._tidies = group.local_rank == 0  # its pod has a folder of its own
        self._committer = Committer(settings, remote, self._retention)

    @override
    def fence(self) -> None:
        """Clear folder and store of what dead attempts left, and shut older attempts out."""
        if self.commits or self._tidies:
            self._folder.mkdir(parents=True, exist_ok=True)
            layout.clean(self._folder)
        if self.commits:
            self._remote.clean()
            self._fence.close()

    def _key(self, step: int) -> str:
        return f"step-{step:08d}.{self._settings.run_key}"

    @contextmanager
    @override
    def begin(self, step: int) -> Iterator[Path]:
        """Put the file at the end."""
        with super().begin(step) as path:
            yield path
        self._remote.put_file(path, f"{self._key(step)}/{path.name}")
        path.unlink()

    @override
    def commit(self, step: int, manifest: Manifest) -> None:
        """Put the manifest: that makes it a checkpoint. A copy of it stays here, where the agent looks."""
        self._retention.bests = bests_of(manifest.scalars)
        try:
            self._fence.check_to_publish()
        except (SupersededError, PlaceTakenError, OSError):
            self._committer.remove(self._key(step))
            raise
        self._committer.commit(self._key(step), step, manifest.encode())
        with only_telling(STANDS.format(step=step), self._settings.rank):
            here = layout.step_folder(self._folder, step)
            make_folder(here)
            layout.write_file(here / layout.MANIFEST, manifest.encode())

    @override
    def prune(self, step: int, *, failed: bool) -> None:
        """Delete surplus checkpoints, or what a failed save has put: it takes the room that the next one needs."""
        if self._tidies:
            with suppress(OSError):
                layout.remove(layout.saving_folder(self._folder, step, self._settings.run_key))
        if self.commits and failed:
            with (
                only_telling(f"What the save of step {step} left could not be deleted", self._settings.rank),
                suppress(SupersededError, PlaceTakenError),
            ):
                self._fence.check()
                self._committer.tidy(failed=self._key(step))
        elif self.commits:
            with only_telling(STANDS.format(step=step), self._settings.rank):
                self._retention.prune_folder(step)
            with only_telling(STANDS.format(step=step), self._settings.rank):
                self._committer.tidy()

    @override
    def newest_step(self, way: Lineage) -> int:
        """Return the newest step that is committed."""
        if not self.commits:
            return -1
        return max((one.step for one in self.look(way)), default=0)

    @override
    def why_none(self, way: Lineage) -> str:
        """Return why none of the checkpoints can be used."""
        return none_is_good(self._seen, self._settings.plan.checkpoint_url or "") if self._seen else ""

    @override
    def bring_lines(self, step: int, holder: int, durable: int, way: Lineage) -> None:
        """Fetch the lines up to the newest checkpoint, which a new pod lacks."""
        if self.commits:
            fetch.take_lines(self._remote, self._settings, way, durable)
