"""Resuming: which checkpoint all ranks go on from, and bringing it to each of them.

Shared folder: rank 0 chooses the newest good one; every rank reads and verifies it for itself; if one of them finds
it bad, the next older one is tried by all.
Private folders (one per replica): the newest that any replica has counts; the lowest rank that has it sends it,
and the metrics up to it to those who lack them.
Own checkpoints first; with none, another job's (`spec.checkpoint.resumeFrom`).

Called by `loop.py` before the first step.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor
from trainmaster.wire import codec

from trainmaster_trainer import metrics, randomness
from trainmaster_trainer.checkpoint.load import Loaded, newest, read
from trainmaster_trainer.checkpoint.manifest import Manifest, whole
from trainmaster_trainer.checkpoint.shard import BadCheckpointError
from trainmaster_trainer.checkpoint.state import Shapes
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies.strategy import Strategy

log = logging.getLogger(__name__)


def resume(settings: Settings, group: Group, strategy: Strategy) -> int:
    """Bring strategy and random numbers to where the training stood; the step, 0 for the beginning.

    Raises:
        ConfigurationError: the checkpoint is another model's, or `resumeFrom` has none.
    """
    expected = strategy.state().model_shapes()
    plan = settings.plan
    find = _find_shared if plan.checkpoint_shared else _find_private
    loaded = find(settings.checkpoints, group, expected)
    if loaded is None and plan.resume_from is not None:
        loaded = _find_elsewhere(Path(plan.resume_from), plan.resume_step, group, expected)
    step = loaded.manifest.step if loaded else 0
    draws_as = group.rank if strategy.draws_as is None else strategy.draws_as
    randomness.seed_rank(plan.seed, draws_as, step)
    if loaded is None:
        return 0
    strategy.restore(loaded.state)
    # The old generators are only right for the same number of ranks; else each rank starts one of its own.
    if loaded.manifest.world_size == group.world_size and draws_as in loaded.manifest.rng_ranks:
        randomness.restore(loaded.rng(draws_as))
    if group.is_first:
        log.info("Resuming from step %d of attempt %d.", step, loaded.manifest.attempt)
    return step


def _find_shared(folder: Path, group: Group, expected: Shapes) -> Loaded | None:
    below: int | None = None
    while True:
        chosen = _look_from_first_rank(folder, group, expected, below)
        step = group.broadcast(chosen.manifest.step if chosen else None)
        if step is None:
            return None
        loaded = chosen or _read(folder, step, expected)
        bad = int(group.sum(torch.tensor([int(loaded is None)])))
        if not bad:
            return loaded
        log.warning(
            "Checkpoint of step %d is bad for %d of %d ranks, trying the one before.", step, bad, group.world_size
        )
        below = step


def _look_from_first_rank(folder: Path, group: Group, expected: Shapes, below: int | None) -> Loaded | None:
    """What rank 0 finds, on rank 0; a configuration error of its is one on all ranks."""
    found, problem = _look(folder, expected, below) if group.is_first else (None, "")
    problem = group.broadcast(problem)
    if problem:
        raise ConfigurationError(problem)
    return found


def _look(folder: Path, expected: Shapes, below: int | None = None) -> tuple[Loaded | None, str]:
    """What there is, or the configuration error, which must not leave the peers waiting."""
    try:
        return newest(folder, expected, below), ""
    except ConfigurationError as error:
        return None, str(error)


def _read(folder: Path, step: int, expected: Shapes) -> Loaded | None:
    try:
        return read(folder, step, expected)
    except BadCheckpointError as bad:
        log.warning("Checkpoint of step %d: %s.", step, bad)
        return None


def _find_elsewhere(folder: Path, step: int | None, group: Group, expected: Shapes) -> Loaded:
    field = "spec.checkpoint.resumeFrom"
    if step is None:
        loaded = _find_shared(folder, group, expected)
        if loaded is None:
            raise ConfigurationError(
                f"{field}: there is no good checkpoint in {folder}. Correct the path or take it out."
            )
        return loaded
    try:
        return read(folder, step, expected)
    except BadCheckpointError as bad:
        raise ConfigurationError(
            f"{field}: step {step} in {folder} cannot be used: {bad}. Name another step."
        ) from None


def _find_private(folder: Path, group: Group, expected: Shapes) -> Loaded | None:
    found, problem = _look(folder, expected) if group.local_rank == 0 else (None, "")
    problems = [text for text in group.gather(problem) if text]
    if problems:
        raise ConfigurationError(problems[0])
    steps = group.gather(found.manifest.step if found else -1)
    best = max(steps)
    if best < 0:
        return None
    source = steps.index(best)
    metrics.spread(folder, best, source, group)
    return _send(found if group.rank == source else None, source, group)


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
