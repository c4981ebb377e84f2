"""Say what a pod has for the code and the packages that its image does not have: volumes, mounts, variables. Pure.

The agent does the rest before anything starts (trainmaster_trainer/agent/bundled.py).
"""

from typing import Any

from trainmaster.api.code import Code
from trainmaster.api.training_spec import TrainingSpec
from trainmaster.core.replica_environment import WHEELS_FOLDER
from trainmaster.wire import names
from trainmaster.wire.bundle import PART_KEY
from trainmaster.wire.sources import ENV_SECRET, SECRET_KEYS

Document = dict[str, Any]

# Where bundle or image are mounted: users can mount nothing here. The agent unpacks a bundle beside it.
CODE_MOUNT = "/run/trainmaster/bundle"
_CODE, _WHEELS = "trainmaster-bundle", "trainmaster-wheels"


def variables(training: TrainingSpec) -> dict[str, str]:
    """Return the variable by which the agent knows that something is to be brought."""
    if training.code is None and training.packages is None:
        return {}
    return {names.ENV_CODE: CODE_MOUNT}


def secrets(code: Code | None) -> list[Document]:
    """Return the variables out of the Secret that the source of the code names. The agent keeps them from the ranks."""
    source = (code.url or code.git) if code else None
    if source is None or source.secret_name is None:
        return []

    def variable(key: str) -> Document:
        reference = {"name": source.secret_name, "key": key, "optional": True}
        return {"name": ENV_SECRET + key, "valueFrom": {"secretKeyRef": reference}}

    return [variable(key) for key in SECRET_KEYS]


def volumes(training: TrainingSpec) -> list[Document]:
    """Return the volumes with code and wheels."""
    code = training.code or Code()
    made: list[Document] = []
    if code.bundle:
        # Each part of the bundle is a file with its number as its name.
        parts = [
            {"configMap": {"name": name, "items": [{"key": PART_KEY, "path": f"{number:03}"}]}}
            for number, name in enumerate(code.bundle.config_maps)
        ]
        made.append({"name": _CODE, "projected": {"sources": parts}})
    if code.image:
        policy = code.image.pull_policy or "IfNotPresent"
        made.append({"name": _CODE, "image": {"reference": code.image.reference, "pullPolicy": policy}})
    if (claim := _claim(training)) is not None:
        made.append({"name": _WHEELS, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    return made


def mounts(training: TrainingSpec) -> list[Document]:
    """Return where they are mounted, read-only."""
    code = training.code or Code()
    paths = [(_CODE, CODE_MOUNT)] if code.bundle or code.image else []
    paths += [(_WHEELS, WHEELS_FOLDER)] if _claim(training) is not None else []
    return [{"name": name, "mountPath": path, "readOnly": True} for name, path in paths]


def _claim(training: TrainingSpec) -> str | None:
    wheels = training.packages.wheels if training.packages else None
    return wheels.persistent_volume_claim.claim_name if wheels and wheels.persistent_volume_claim else None
