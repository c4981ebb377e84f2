"""Decide which checkpoint all ranks go on from, and bring it to each of them, before the first step.

Shared folder: rank 0 chooses the newest good one; every rank reads and verifies it for itself; if one of them finds
it bad, the next older one is tried by all.
Private folders (one per replica): the newest that any replica has counts; the lowest rank that has it sends it,
and the metrics up to it to those who lack them.
Memory first, where it is as new (`recall.py`); then own checkpoints; with none, another job's
(`spec.checkpoint.resumeFrom`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from trainmaster.wire import codec

from trainmaster_trainer import metrics
from trainmaster_trainer.checkpoint import elsewhere, lineage
from trainmaster_trainer.checkpoint.checkpointable import Checkpointable, Snapshots
from trainmaster_trainer.checkpoint.fetch import (
    find_foreign,
    find_remote,
    find_while_it_changes,
    read_or_tell,
    take_lines,
    trusted_in,
)
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import Loaded, Trusted, newest, newest_step, read
from trainmaster_trainer.checkpoint.manifest import Manifest, check_same_everywhere, check_same_order, whole
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.recall import Recalled, find_snapshots, recall, row_of
from trainmaster_trainer.checkpoint.remote import Remote, open_remote
from trainmaster_trainer.checkpoint.state import Shapes
from trainmaster_trainer.checkpoint.unusable import check_empty
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

    @property
    def is_borrowed(self) -> bool:
        """Return whether a restart could only begin with the other job's checkpoints, which may be gone by then."""
        return self.durable_step < self.begun

    @property
    def begins(self) -> bool:
        """Return whether the job itself begins here: what the state says of its past is another job's."""
        return self.step <= self.begun

    @property
    def lines_step(self) -> int:
        """Return up to which step there may be lines of it: 0, where it begins now."""
        return 0 if self.is_borrowed and self.step == self.begun else self.step


def resume(settings: Settings, group: Group, training: Checkpointable, dataset: int = 0) -> Resumed:
    """Bring the training to where it stood, and write down from where this attempt goes on.

    `dataset`: how many samples it has; 0 where that is not known.

    Raises:
        ConfigurationError: the checkpoint is another model's, `resumeFrom` has none, or the samples are not those of
            the other ranks or of the attempt before.
        CorruptCheckpointError: there are checkpoints, and none is good.
        OSError: the object store does not answer.
    """
    outline = training.outline()
    expected = outline.model_shapes()
    remote = open_remote(settings)
    told = lineage.read(settings.checkpoints, settings.job_uid, remote)
    known = Lineage.merged(map(_lineage, group.gather(sorted(told.resumed.items()))))
    remembers = training.snapshots is not Snapshots.NONE
    mine = find_snapshots(settings, outline, known) if remembers else []
    newest_here = _newest_step(settings, group, remote, known)
    news = [newest_here, [row_of(snapshot) for snapshot in mine], dataset]
    steps, rows, counts = zip(*group.gather(news), strict=True)
    check_same_everywhere(dict(enumerate(counts)))
    durable = max(steps)
    recalled = None
    if remembers:
        recalled = recall(settings, group, mine, rows, newer_than=durable, dataset=dataset)
    if recalled is not None:
        if remote and group.is_first:
            take_lines(remote, settings, known, durable)
        resumed = _from_memory(recalled, durable, known.begun, settings=settings, group=group, training=training)
        resumed = replace(resumed, some_lack=not settings.plan.checkpoint_shared and 0 <= newest_here < durable)
    else:
        resumed = _from_checkpoint(expected, settings, group, training, known, dataset=dataset)
    if resumed.begun != known.begun:
        known = Lineage()  # it begins anew: an attempt before began with an older one, and saved nothing of its own
    if group.is_first or (not settings.plan.checkpoint_shared and group.local_rank == 0):
        lineage.write(
            settings.checkpoints, settings.job_uid, known.with_attempt(settings.attempt, resumed.step), remote
        )
    lacking = group.gather(resumed.some_lack)  # no rank trains before the lineage is written
    return replace(resumed, some_lack=any(lacking))


def _lineage(rows: list[tuple[int, int]]) -> Lineage:
    return Lineage(dict(rows))


def _newest_step(settings: Settings, group: Group, remote: Remote | None, known: Lineage) -> int:
    """Return the step of the newest checkpoint on the training's way whose manifest is whole; 0 where there is none.

    One rank looks where all would see the same; -1 is the answer of the others.
    """
    looks = group.is_first if remote or settings.plan.checkpoint_shared else group.local_rank == 0
    if not looks:
        return -1
    if remote:
        saved = trusted_in(remote, known, settings)
        return saved[0].step if saved else 0
    return newest_step(settings.checkpoints, lineage.trusting(known, settings))


def _from_memory(
    recalled: Recalled, durable: int, begun: int, *, settings: Settings, group: Group, training: Checkpointable
) -> Resumed:
    training.restore_local(recalled.state)
    if not settings.plan.checkpoint_shared:
        metrics.spread(settings.checkpoints, recalled.step, recalled.holder, group, trusted=durable)
    if group.is_first:
        log.info("Resuming from step %d of attempt %d, kept in memory.", recalled.step, recalled.attempt)
    return Resumed(recalled.step, durable, min(recalled.step, begun), recalled.pending, recalled.attempt)


def _from_checkpoint(
    expected: Shapes, settings: Settings, group: Group, training: Checkpointable, known: Lineage, *, dataset: int
) -> Resumed:
    """Go on from a verified checkpoint, or begin at step 0."""
    plan = settings.plan
    remote = open_remote(settings)
    if remote:
        loaded = find_remote(remote, settings, group, expected, known)
    else:
        find = _find_shared if plan.checkpoint_shared else _find_private
        trusted = lineage.trusting(known, settings)
        loaded = find(settings.checkpoints, group, expected, None, trusted)
        if loaded is None:
            check_empty(settings, group, trusted)
    is_own = loaded is not None
    if loaded is not None:
        check_same_order(loaded.manifest.cursor, plan, dataset)
    elif plan.resume_from or plan.resume_job:
        loaded = _find_elsewhere(settings, group, expected)
    step = loaded.manifest.step if loaded else 0
    if loaded is None:
        return Resumed()
    (training.restore if is_own else training.borrow)(loaded.state)
    if group.is_first:
        log.info("Resuming from step %d of attempt %d.", step, loaded.manifest.attempt)
    if not is_own:
        return Resumed(step, begun=step)
    counted = loaded.manifest.cursor.dataset
    return Resumed(step, step, min(step, known.begun), dataset=counted, some_lack=not loaded.is_here)


def _find_shared(folder: Path, group: Group, expected: Shapes, below: int | None, trusted: Trusted) -> Loaded | None:
    while True:
        chosen = _look_from_first_rank(folder, group, expected, below, trusted)
        step = group.broadcast(chosen.manifest.step if chosen else None)
        if step is None:
            return None
        loaded = chosen or read_or_tell(folder, step, expected)
        bad = int(group.sum(torch.tensor([int(loaded is None)])))
        if not bad:
            return loaded
        log.warning(
            "Checkpoint of step %d is bad for %d of %d ranks, trying the one before.", step, bad, group.world_size
        )
        below = step


def _look_from_first_rank(
    folder: Path, group: Group, expected: Shapes, below: int | None, trusted: Trusted
) -> Loaded | None:
    """Return, on rank 0, what it finds. Its configuration error is raised on all ranks."""
    found, problem = _look(folder, expected, below, trusted) if group.is_first else (None, "")
    problem = group.broadcast(problem)
    if problem:
        raise ConfigurationError(problem)
    return found


def _look(folder: Path, expected: Shapes, below: int | None, trusted: Trusted) -> tuple[Loaded | None, str]:
    """Return the checkpoint, or the text of a configuration error, which must not leave the peers waiting."""
    try:
        return newest(folder, expected, below, trusted), ""
    except ConfigurationError as error:
        return None, str(error)


def _find_elsewhere(settings: Settings, group: Group, expected: Shapes) -> Loaded:
    """Return another job's checkpoint, as `resumeFrom` says."""
    source, problem = group.broadcast(_source(settings) if group.is_first else None)
    if problem:
        raise ConfigurationError(problem)
    step = settings.plan.resume_step
    if elsewhere.is_url(source):
        store = Remote(source, settings.plan.checkpoint_endpoint, elsewhere.FIELD)
        loaded = find_foreign(store, settings, group, expected)
        problem = "it is not there, or not good"
    elif step is None:
        loaded = _find_newest(Path(source), group, expected)
    else:
        loaded, problem = _read_step(Path(source), step, expected)
    if loaded is None and step is None:
        raise ConfigurationError(
            f"{elsewhere.FIELD}: there is no good checkpoint in {source}. Correct the path or take it out."
        )
    if loaded is None:
        raise ConfigurationError(
            f"{elsewhere.FIELD}: step {step} in {source} cannot be used: {problem}. Name another step."
        )
    return loaded


def _find_newest(folder: Path, group: Group, expected: Shapes) -> Loaded | None:
    return find_while_it_changes(
        lambda: newest_step(folder, lineage.trusting_owner(folder)) if group.is_first else 0,
        lambda _: _find_shared(folder, group, expected, None, lineage.trusting_owner(folder)),
        group,
    )


def _source(settings: Settings) -> tuple[str, str]:
    """Return what `resumeFrom` names, or the text of a configuration error, which must not leave the peers waiting."""
    try:
        return elsewhere.source_of(settings), ""
    except ConfigurationError as error:
        return "", str(error)


def _read_step(folder: Path, step: int, expected: Shapes) -> tuple[Loaded | None, str]:
    try:
        return read(folder, step, expected, lineage.trusting_owner(folder)), ""
    except CorruptCheckpointError as bad:
        return None, str(bad)


def _find_private(folder: Path, group: Group, expected: Shapes, below: int | None, trusted: Trusted) -> Loaded | None:
    found, problem = _look(folder, expected, below, trusted) if group.local_rank == 0 else (None, "")
    problems = [text for text in group.gather(problem) if text]
    if problems:
        raise ConfigurationError(problems[0])
    steps = group.gather(found.manifest.step if found else -1)
    best = max(steps)
    if best < 0:
        return None
    source = steps.index(best)
    own = max(0, steps[group.rank - group.local_rank])  # of this folder, whose lines were on the disk before
    metrics.spread(folder, best, source, group, trusted=own)
    sent = _send(found if group.rank == source else None, source, group)
    return replace(sent, is_here=steps[group.rank - group.local_rank] == best)


def _send(loaded: Loaded | None, source: int, group: Group) -> Loaded:
    plain = group.broadcast(codec.to_plain(loaded.manifest) if loaded else None, source)
    manifest = codec.from_plain(Manifest, plain)
    tensors: dict[str, Tensor] = {}
    for name, pieces in sorted(manifest.pieces().items()):
        dtype, shape = whole(pieces)
        tensor = loaded.tensors[name].contiguous() if loaded else torch.empty(shape, dtype=getattr(torch, dtype))
        group.broadcast_tensor(tensor, source)
        tensors[name] = tensor
    return Loaded(manifest, tensors)
