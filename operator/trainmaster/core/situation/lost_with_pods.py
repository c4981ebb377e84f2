"""Say what is lost with the pods: an unsaved model, logs beside sidecars, and what compression had left out."""

from collections.abc import Sequence

from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.situation.facts import Facts, Statement
from trainmaster.core.situation.sidecars import KEPT_SECONDS
from trainmaster.wire import names

CHECKPOINT_STORAGE = "CheckpointStorage"
NOT_SET, DEFAULT = "NotSet", "Default"


def statement(facts: Facts, status: TrainingJobStatus) -> Statement | None:
    """Return the condition that nothing keeps what is saved, or the default; None where the job names a storage."""
    given = status.storage
    if given is not None and facts.job.spec.checkpoint.storage in (None, given):
        place = f"the claim {given.persistent_volume_claim.claim_name}" if given.persistent_volume_claim else "a path"
        place = given.object_store.url if given.object_store else place
        message = f"spec.checkpoint.storage is not set, so the administrator's default keeps what is saved: {place}."
        return CHECKPOINT_STORAGE, True, DEFAULT, message
    if not facts.observed.private_checkpoints:
        return None
    message = (
        "spec.checkpoint.storage is not set, so checkpoints and the final model are in the pods' own folders and are "
        "gone with them. To keep the model, name a persistentVolumeClaim or an objectStore there."
    )
    return CHECKPOINT_STORAGE, False, NOT_SET, message


def at_the_end(facts: Facts) -> str:
    """Return sentences, each after a blank, about what is lost already, or will be soon; empty where nothing is."""
    lost = " The model was not kept, as spec.checkpoint.storage is not set."
    said = statement(facts, facts.status)
    model = lost if said and said[2] == NOT_SET else ""
    templates = (spec.template.to_dict() if spec.template else {} for spec in facts.job.spec.roles.values())
    containers = [one for template in templates for one in (template.get("spec") or {}).get("containers") or ()]
    sidecars = sorted({str(one.get("name")) for one in containers} - {names.MAIN_CONTAINER})
    if not sidecars:
        return model
    return (
        f"{model} Containers beside the trainer ({', '.join(sidecars)}) hold the pods until they end: after "
        f"{KEPT_SECONDS // 60} minutes the pods are deleted with their logs. An init container with restartPolicy: "
        "Always is ended by Kubernetes, and the log stays."
    )


def taken_along(facts: Facts, members: Sequence[str]) -> str:
    """Return, after a blank, what workers among `members` take along that nobody restores; empty where nothing is."""
    kind = facts.job.spec.strategy.compression
    if kind == "None" or not any(key.startswith(names.WORKER) for key in members):
        return ""
    return f" What compression {kind} had left out of gradients there, to be added to the next ones, is lost."
