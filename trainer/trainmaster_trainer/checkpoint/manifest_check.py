"""Check whether a training may go on from a manifest.

The manifest itself, and its reader, are in `trainmaster.wire.manifest`.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.wire.manifest import (
    FORMAT,
    Cursor,
    Glance,
    Manifest,
    glance,
    model_sha256,
    read_manifest,
)
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.errors import ConfigurationError

__all__ = ["FORMAT", "Cursor", "Glance", "Manifest", "glance", "model_sha256", "read_manifest"]


def check_same_order(cursor: Cursor, plan: TrainingPlan, dataset: int) -> None:
    """Refuse to go on if samples would be lost or repeated: a step's samples follow from these three values.

    Raises:
        ConfigurationError: names the field that has changed.
    """
    if plan.command:  # a script knows itself which samples a step takes
        return
    check_same_dataset(cursor.step, cursor.dataset, dataset)
    for name, then, now in (
        ("globalBatchSize", cursor.global_batch_size, plan.global_batch_size),
        ("seed", cursor.seed, plan.seed),
    ):
        if then != now:
            raise ConfigurationError(
                f"spec.training.{name}: this job's checkpoint of step {cursor.step} was reached with {then}, and with "
                f"{now} the next steps would leave samples out or repeat some. Put it back (on a laptop), or begin "
                "another job with spec.checkpoint.resumeFrom."
            )


def check_same_dataset(step: int, then: int, now: int) -> None:
    """Refuse to go on from a step that was reached with another number of samples; 0: not known.

    Raises:
        ConfigurationError: it was.
    """
    if then and now and then != now:
        raise ConfigurationError(
            f"spec.training.task: its dataset() has {now} samples now, and step {step} of this job was reached with "
            f"{then}; the next steps would leave samples out or repeat some. Give it the same again (on a laptop), or "
            "begin another job with spec.checkpoint.resumeFrom."
        )


def check_same_everywhere(counts: Mapping[int, int]) -> None:
    """Refuse ranks (the keys) that do not have the same number of samples (the values).

    Raises:
        ConfigurationError: names two of them.
    """
    first = min(counts)
    other = next((rank for rank, count in sorted(counts.items()) if count != counts[first]), None)
    if other is not None:
        raise ConfigurationError(
            f"spec.training.task: its dataset() has {counts[first]} samples on rank {first} and {counts[other]} on "
            f"rank {other}, and each would take them in an order of its own. Give all ranks the same, as from a list "
            "of files that is made once, before the training."
        )
