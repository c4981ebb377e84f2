"""Go on from a store as `resume` does, without a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.checkpoint.resume import first_good
from trainmaster_trainer.checkpoint.state import MODEL, Shapes, State
from trainmaster_trainer.checkpoint.stores.foreign import open_foreign
from trainmaster_trainer.checkpoint.stores.object_store import ObjectStore
from trainmaster_trainer.settings import Settings

from tests.trainer.ranks import alone


def outline(shapes: Shapes) -> State:
    """A state of these shapes."""
    assert all(name.startswith(MODEL) for name in shapes)
    return State({name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, (dtype, shape) in shapes.items()})


def find_remote(remote: Remote, settings: Settings, shapes: Shapes, way: Lineage) -> LoadedCheckpoint | None:
    """The newest good checkpoint of a job of one rank; an error where there are some, and none is good."""
    store = ObjectStore(settings, alone(), remote)
    loaded = first_good(store, alone(), outline(shapes), way)
    if loaded is None and (problem := store.why_none(way)):
        raise CorruptCheckpointError(problem)
    return loaded


def find_newest(folder: Path, shapes: Shapes) -> LoadedCheckpoint | None:
    """Another job's newest good checkpoint, in a folder."""
    settings = Settings(TrainingPlan("OneDevice", resume_from=str(folder)), Path("nowhere"))
    return first_good(open_foreign(settings, alone()), alone(), outline(shapes), Lineage())


def find_foreign(url: str, settings: Settings, shapes: Shapes) -> LoadedCheckpoint | None:
    """Another job's newest good checkpoint."""
    there = replace(settings, plan=replace(settings.plan, resume_from=url))
    return first_good(open_foreign(there, alone()), alone(), outline(shapes), Lineage())
