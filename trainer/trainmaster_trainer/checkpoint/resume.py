"""Decide which state all ranks go on from, and bring it to each of them, before the first step.

Each place of states is a source (`stores/`): memory first, where it is as new as the newest checkpoint; then the job's
own checkpoints; with none, another job's (`spec.checkpoint.resumeFrom`). `first_good` takes the newest candidate of a
source that all ranks find good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from torch import Tensor

from trainmaster_trainer.checkpoint.checkpointable import Checkpointable
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.manifest_check import check_same_everywhere, check_same_order
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.checkpoint.stores import open_memory
from trainmaster_trainer.checkpoint.stores.foreign import open_foreign
from trainmaster_trainer.checkpoint.stores.store import Found_co, Row, Source, Store, Told
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resumed:
    """Resumed says where training goes on."""

    step: int = 0
    durable_step: int = 0  # of its own newest checkpoint; smaller where memory had a newer state, 0 where it has none
    begun: int = 0  # at which step the job itself began, with another one's checkpoint
    pending: tuple[Tensor, ...] = ()  # losses up to `step` that no file has yet, each at one rank
    pending_attempt: int = 0  # whose they are
    dataset: int = 0  # how many samples there were, where it goes on from a checkpoint of its own that says so
    some_lack: bool = False  # replicas with folders of their own have not got the checkpoint of `durable_step`
    writing: Future[None] | None = None  # until it is done, nothing counts that this attempt does

    @property
    def is_borrowed(self) -> bool:
        """Return whether a restart could only begin with the other job's checkpoints, which may be gone by then."""
        return self.durable_step < self.begun

    @property
    def begins(self) -> bool:
        """Return whether the job itself begins here: what the state says of its past is another job's."""
        return self.step <= self.begun

    def settled(self, group: Group) -> Resumed:
        """Wait until it is written from where this attempt goes on, and return what all ranks know together.

        All ranks call it, before anything is kept of a step of this attempt.

        Raises:
            OSError: it could not be written.
        """
        if self.writing is not None:
            self.writing.result()
        return replace(self, writing=None, some_lack=any(group.gather(self.some_lack)))

    @property
    def lines_step(self) -> int:
        """Return up to which step there may be lines of it: 0, where it begins now."""
        return 0 if self.is_borrowed and self.step == self.begun else self.step


def resume(store: Store, settings: Settings, group: Group, training: Checkpointable, dataset: int = 0) -> Resumed:
    """Bring the training to where it stood, and begin to write down from where this attempt goes on (`settled`).

    `store`: of the job's own checkpoints. `dataset`: how many samples it has; 0 where that is not known.

    Raises:
        ConfigurationError: the checkpoint is another model's, `resumeFrom` has none, or the samples are not those of
            the other ranks or of the attempt before.
        CorruptCheckpointError: there are checkpoints, and none is good.
        OSError: the object store does not answer.
    """
    outline = training.outline()
    lineages = group.gather(sorted(store.lineage().resumed.items()))
    way = Lineage.merged(lineages, settings)
    memory = open_memory(settings, group, training, dataset)
    newest_here = store.newest_step(way)
    news = [newest_here, memory.candidates(outline, way) if memory else [], dataset]
    steps, told, counts = zip(*group.gather(news), strict=True)
    check_same_everywhere(dict(enumerate(counts)))
    durable = max(steps)
    as_new = [[row for row in rows if row[0] >= durable] for rows in told]
    recalled = first_good(memory, group, outline, way, as_new) if memory else None
    if recalled is not None:
        training.restore_local(recalled.state)
        store.bring_lines(recalled.step, recalled.holder, durable, way)
        if group.is_first:
            log.info("Resuming from step %d of attempt %d, kept in memory.", recalled.step, recalled.attempt)
        begun = min(recalled.step, way.begun)
        lacks = not store.shared and 0 <= newest_here < durable
        resumed = Resumed(recalled.step, durable, begun, recalled.pending, recalled.attempt, some_lack=lacks)
    else:
        resumed = _from_checkpoint(store, training, outline, way, settings=settings, group=group, dataset=dataset)
    if resumed.begun != way.begun:
        # It begins anew: an attempt before began with an older one, and saved nothing of its own.
        way = Lineage(owner=way.owner)
    writer = ThreadPoolExecutor(1, "lineage")  # a disk takes its time, in which a first step can be computed
    writing = writer.submit(store.go_on, way.with_attempt(settings.attempt, resumed.step))
    writer.shutdown(wait=False)
    return replace(resumed, writing=writing)


def first_good(
    source: Source[Found_co], group: Group, outline: State, way: Lineage, told: Told | None = None
) -> Found_co | None:
    """Return the newest state of a source that all ranks find good; None if there is none.

    All ranks call it together. `told`: the candidates of all ranks, where they have told each other already.

    Raises:
        ConfigurationError: there is one, and it is another model's.
    """
    while True:
        if told is None:
            rows: Sequence[Row] = []
            problem = ""
            try:
                rows = source.candidates(outline, way)
            except ConfigurationError as error:
                problem = str(error)  # raised on all ranks: none may wait for the others
            answers = group.gather([rows, problem])
            for _, text in answers:
                if text:
                    raise ConfigurationError(text)
            told = [theirs for theirs, _ in answers]
        newest = max((row for rows in told for row in rows), key=lambda row: int(row[0]), default=None)
        if newest is None:
            return None
        found = source.bring(newest, told)
        if found is not None:
            return found
        told = None


def _from_checkpoint(
    store: Store,
    training: Checkpointable,
    outline: State,
    way: Lineage,
    *,
    settings: Settings,
    group: Group,
    dataset: int,
) -> Resumed:
    """Go on from a verified checkpoint of its own, else begin with another job's, else at step 0."""
    plan = settings.plan
    loaded = first_good(store, group, outline, way)
    if loaded is not None:
        check_same_order(loaded.manifest.cursor, plan, dataset)
        training.restore(loaded.state)
        step, counted = loaded.manifest.step, loaded.manifest.cursor.dataset
        resumed = Resumed(step, step, min(step, way.begun), dataset=counted, some_lack=not loaded.is_here)
    else:
        for problem in filter(None, group.gather(store.why_none(way))):
            raise CorruptCheckpointError(problem)
        if not (plan.resume_from or plan.resume_job):
            return Resumed()
        source = open_foreign(settings, group)
        loaded = first_good(source, group, outline, way)
        if loaded is None:
            raise ConfigurationError(group.broadcast(source.why_none(way)))
        training.borrow(loaded.state)
        resumed = Resumed(loaded.manifest.step, begun=loaded.manifest.step)
    if group.is_first:
        log.info("Resuming from step %d of attempt %d.", resumed.step, loaded.manifest.attempt)
    return resumed
