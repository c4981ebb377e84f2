"""State the condition `CheckpointSaving`: whether checkpoints can be written.

A save that fails costs no training, so it could go unnoticed until the checkpoint is needed. It is stated once, with
the newest good checkpoint and a cure, and taken back by the next good save. A job whose saves have never failed has no
such condition.
"""

from trainmaster.core import figures
from trainmaster.core.failures import classes, signatures
from trainmaster.core.situation.facts import Facts
from trainmaster.wire.messages import ErrorReport, UnsavedCheckpoint

CHECKPOINT_SAVING = "CheckpointSaving"
SAVE_FAILED = "SaveFailed"
_SAVED = "Saved"
_LONGEST = 400  # characters of the trainer's own words

Statement = tuple[str, bool, str, str]


def statement(facts: Facts) -> Statement | None:
    """Return the condition's type, whether it holds, reason and message; None: no save has ever failed."""
    told = [rank.unsaved for rank in facts.ranks if rank.unsaved]
    if told:
        unsaved = min(told, key=lambda unsaved: unsaved.step)  # the earliest that no good one has followed
        reason = _class_of(unsaved) or SAVE_FAILED
        return CHECKPOINT_SAVING, False, reason, _sentence(facts, unsaved)
    before = next((c for c in facts.status.conditions if c.type == CHECKPOINT_SAVING), None)
    if before is None:
        return None
    newest, old = facts.checkpoint, facts.status.checkpoint
    if before.status == "True" or (newest is not None and (old is None or newest.step > old.step)):
        step = newest.step if newest else 0
        return CHECKPOINT_SAVING, True, _SAVED, f"Checkpoints are written again; the newest one is that of step {step}."
    return CHECKPOINT_SAVING, False, before.reason, before.message  # ranks that have just begun have not tried yet


def _class_of(unsaved: UnsavedCheckpoint) -> str:
    """Return the failure class that the message names; empty where it names none."""
    found = signatures.class_of(ErrorReport("OSError", unsaved.problem))
    return "" if found == classes.PYTHON_ERROR else found


def _sentence(facts: Facts, unsaved: UnsavedCheckpoint) -> str:
    newest = facts.checkpoint
    good = f"the newest good one is that of step {newest.step}" if newest else "there is no good one yet"
    words = figures.legible(unsaved.problem)[:_LONGEST]
    cure = classes.of(_class_of(unsaved)).cure or "See spec.checkpoint.storage and the log of the first worker."
    return (
        f"The checkpoint of step {figures.count(unsaved.step)} could not be written, {good}: {figures.sentence(words)} "
        f"Training goes on, and each save is tried. {cure}"
    )
