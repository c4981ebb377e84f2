"""State the condition `CheckpointSaving`: whether checkpoints can be written.

A save that fails costs no training, so it could go unnoticed until the checkpoint is needed. It is stated once, with
the newest good checkpoint and a cure, and taken back by the next good save. A job whose saves have never failed has no
such condition.
"""

from trainmaster.core import figures
from trainmaster.core.failures import classes, signatures
from trainmaster.core.situation.facts import Facts, Statement
from trainmaster.wire.messages import ErrorReport

CHECKPOINT_SAVING = "CheckpointSaving"
SAVE_FAILED = "SaveFailed"
_SAVED = "Saved"
_LONGEST = 400  # characters of the trainer's own words


def statement(facts: Facts) -> Statement | None:
    """Return the condition's type, whether it holds, reason and message; None: no save has ever failed."""
    told = [rank.unsaved for rank in facts.ranks if rank.unsaved]
    newest, old = facts.checkpoint, facts.status.checkpoint
    if told:
        unsaved = min(told, key=lambda unsaved: unsaved.step)  # the earliest that no good one has followed
        known = signatures.class_of(ErrorReport("OSError", unsaved.problem))
        known = "" if known == classes.PYTHON_ERROR else known  # that is the class of what no signature fits
        cure = classes.class_of(known).cure or "See spec.checkpoint.storage and the log of the first worker."
        good = f"the newest good one is that of step {newest.step}" if newest else "there is no good one yet"
        words = figures.legible(unsaved.problem)[:_LONGEST]
        message = (
            f"The checkpoint of step {figures.count(unsaved.step)} could not be written, {good}: "
            f"{figures.sentence(words)} Training goes on, and each save is tried. {cure}"
        )
        return CHECKPOINT_SAVING, False, known or SAVE_FAILED, message
    before = next((c for c in facts.status.conditions if c.type == CHECKPOINT_SAVING), None)
    if before is None:
        return None
    if before.status == "True" or (newest is not None and (old is None or newest.step > old.step)):
        step = newest.step if newest else 0
        return CHECKPOINT_SAVING, True, _SAVED, f"Checkpoints are written again; the newest one is that of step {step}."
    return CHECKPOINT_SAVING, False, before.reason, before.message  # ranks that have just begun have not tried yet
