"""The container that trains, what is mounted into it, and how the agent gets into a user's own image: pure.

Called by `manifests`. The trainer image has everything in it. An image of the user's own needs only Python (and torch,
to train): an init container brings the rest.
"""

import posixpath
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.replicas import ReplicaSpec
from trainmaster.core.environment import agent_environment
from trainmaster.core.grace import FOR_LAST_WORDS, grace_seconds
from trainmaster.wire import names

Document = dict[str, Any]

# Where the trainer image has Python, and `trainmaster` and `trainmaster_trainer` (images/trainer/Dockerfile).
PYTHON_IN_IMAGE = "/opt/venv/bin/python3"
CODE_IN_IMAGE = "/opt/trainmaster/lib"
# Where a user's own image finds them.
CODE_FOLDER = "/trainmaster"
TOKEN_FOLDER = "/var/run/secrets/trainmaster"
CHECKPOINT_FOLDER = "/checkpoints"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  a mount of the pod's own
TEMPORARY = "/tmp"  # noqa: S108  likewise
# Of the agent alone, whatever a user mounts at /tmp.
SCRATCH_FOLDER = "/run/trainmaster"

# -I: neither variables nor the user's folder, where the container starts and a `random.py` may lie, change the agent.
_START = "trainmaster_trainer/agent/start.py"
# Without modes and owners: the emptyDir's own folder belongs to root, and only files below it to us.
_INSTALL = f"cp -R {CODE_IN_IMAGE}/. {CODE_FOLDER}"


# What every container may ask for; devices are the trainer's alone.
_OF_ANY_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True)
class PodSettings:
    """What all pods of an operator share."""

    operator_url: str
    trainer_image: str
    pull_policy: str | None = None


@dataclass(frozen=True)
class Place:
    """Which replica of which job."""

    job: TrainingJob
    role: str
    index: int
    incarnation: int

    @property
    def spec(self) -> ReplicaSpec:
        """What the job says about all replicas of this role."""
        return self.job.spec.roles[self.role]

    @property
    def name(self) -> str:
        """The pod's name."""
        return names.replica_name(self.job.name, self.role, self.index, self.incarnation)

    @cached_property
    def template(self) -> Document:
        """The template's pod spec."""
        template = self.spec.template.to_dict() if self.spec.template else {}
        return template.get("spec") or {}

    @cached_property
    def trainer_template(self) -> Document:
        """What the template says about the container that trains."""
        containers = self.template.get("containers") or []
        return next((one for one in containers if one["name"] == names.MAIN_CONTAINER), {})

    @property
    def own_image(self) -> str | None:
        """The user's image, if it is not ours."""
        return self.spec.image or self.trainer_template.get("image")


def folder(job: TrainingJob) -> str:
    """Where the pods find this job's checkpoints. On a claim each job has a folder of its own."""
    storage = job.spec.checkpoint.storage
    if storage and storage.path:
        return storage.path
    if storage and storage.persistent_volume_claim:
        return f"{CHECKPOINT_FOLDER}/{job.name}-{job.uid[:8]}"
    return CHECKPOINT_FOLDER


def trainer(place: Place, settings: PodSettings) -> Document:
    """The container that trains: what the spec names, and what the agent cannot do without."""
    named = place.spec.to_dict()
    ours = {
        **agent_environment(place.job, place.role, place.index, place.incarnation),
        names.ENV_OPERATOR: settings.operator_url,
        names.ENV_TOKEN_FILE: f"{TOKEN_FOLDER}/token",
        names.ENV_CHECKPOINTS: folder(place.job),
        names.ENV_SCRATCH: SCRATCH_FOLDER,
        names.ENV_GRACE: str(max(0, _grace(place) - FOR_LAST_WORDS)),
    }
    container: Document = {
        "name": names.MAIN_CONTAINER,
        "image": place.own_image or settings.trainer_image,
        "command": agent_command(place.own_image),
        # Ours first: the user's may refer to them as $(TRAINMASTER_INDEX).
        "env": [*_downward(), *variables(ours), *(item for item in named.get("env", []) if item["name"] not in ours)],
        "resources": resources(place.spec),
        "volumeMounts": _mounts(place, named.get("volumeMounts", [])),
    }
    storage = place.job.spec.checkpoint.storage
    if storage and storage.object_store and storage.object_store.secret_name:
        named["envFrom"] = [*named.get("envFrom", []), {"secretRef": {"name": storage.object_store.secret_name}}]
    pull_policy = place.spec.image_pull_policy or (None if place.own_image else settings.pull_policy)
    more = {"imagePullPolicy": pull_policy, "envFrom": named.get("envFrom")}
    return {**container, **{key: value for key, value in more.items() if value}}


def agent_command(own_image: str | None) -> list[str]:
    """The command line of the agent. Only the image itself knows where a user's own one has Python."""
    python, code = ("python3", CODE_FOLDER) if own_image else (PYTHON_IN_IMAGE, CODE_IN_IMAGE)
    return [python, "-I", f"{code}/{_START}"]


def installer(settings: PodSettings) -> Document:
    """The init container that brings the agent and the trainer into a user's image."""
    container: Document = {
        "name": names.INSTALLER_CONTAINER,
        "image": settings.trainer_image,
        "command": ["sh", "-c", _INSTALL],
        "volumeMounts": [{"name": "trainmaster-code", "mountPath": CODE_FOLDER}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {**container, "imagePullPolicy": settings.pull_policy} if settings.pull_policy else container


def modest(named: Any) -> Document:
    """Return the part of the trainer's resources that the installer asks for too, and no more.

    The pod as a whole then asks for no more than the trainer, whatever a namespace adds to a container that asks for
    nothing, and a quota that wants limits of every container has them.
    """
    found = {kind: named.get(kind) for kind in ("requests", "limits")} if isinstance(named, dict) else {}
    asked = {
        kind: {name: amount for name, amount in one.items() if name in _OF_ANY_CONTAINER}
        for kind, one in found.items()
        if isinstance(one, dict)
    }
    return {kind: amounts for kind, amounts in asked.items() if amounts}


def volumes(place: Place) -> list[Document]:
    """What the container mounts."""
    storage = place.job.spec.checkpoint.storage
    token = {"audience": names.TOKEN_AUDIENCE, "expirationSeconds": names.TOKEN_SECONDS, "path": "token"}
    made: list[Document] = [
        # A container has 64 MB of shared memory by default: too little for data loaders and for NCCL.
        {"name": "trainmaster-shm", "emptyDir": {"medium": "Memory"}},
        {"name": "trainmaster-tmp", "emptyDir": {}},
        {"name": "trainmaster-scratch", "emptyDir": {}},
        {"name": "trainmaster-token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    if storage and storage.persistent_volume_claim:
        claim = {"claimName": storage.persistent_volume_claim.claim_name}
        made.append({"name": "trainmaster-checkpoints", "persistentVolumeClaim": claim})
    elif not (storage and storage.path):
        made.append({"name": "trainmaster-checkpoints", "emptyDir": {}})
    if place.own_image:
        made.append({"name": "trainmaster-code", "emptyDir": {}})
    return made


def resources(replica: ReplicaSpec) -> Document:
    """Memory is a hard limit. CPU is a share only: a limit would stall a rank for the rest of every 100 ms."""
    return dict(_amounts(replica))


def variables(values: dict[str, str]) -> list[Document]:
    """As a container's `env`."""
    return [{"name": name, "value": value} for name, value in values.items()]


def _grace(place: Place) -> int:
    given = place.template.get("terminationGracePeriodSeconds")
    return given if isinstance(given, int) and given else grace_seconds(place.job)


def _amounts(replica: ReplicaSpec) -> list[tuple[str, dict[str, str]]]:
    asked = {name: str(amount) for name, amount in (("cpu", replica.cpu), ("memory", replica.memory)) if amount}
    limits = {"memory": asked["memory"]} if "memory" in asked else {}
    if replica.gpus and not replica.claims_devices:
        limits[replica.device_resource] = str(replica.gpus)
    return [(key, value) for key, value in (("requests", asked), ("limits", limits)) if value]


def _downward() -> list[Document]:
    """What only Kubernetes knows, and only once the pod is there."""
    paths = {names.ENV_POD_UID: "metadata.uid", names.ENV_ADDRESS: "status.podIP"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def _mounts(place: Place, given: list[Document]) -> list[Document]:
    """The user's, and ours where the user has none: a large volume on /tmp, say, is for the user to choose."""
    usual = {"trainmaster-shm": SHARED_MEMORY, "trainmaster-tmp": TEMPORARY}
    if _has_checkpoint_volume(place):
        usual["trainmaster-checkpoints"] = CHECKPOINT_FOLDER
    beneath = place.trainer_template.get("volumeMounts") or []
    taken = {mount_path(mount) for mount in (*given, *beneath)}
    mounts = [*given, *({"name": name, "mountPath": path} for name, path in usual.items() if path not in taken)]
    mounts.append({"name": "trainmaster-scratch", "mountPath": SCRATCH_FOLDER})
    mounts.append({"name": "trainmaster-token", "mountPath": TOKEN_FOLDER, "readOnly": True})
    if place.own_image:
        mounts.append({"name": "trainmaster-code", "mountPath": CODE_FOLDER, "readOnly": True})
    return mounts


def mount_path(mount: Any) -> str:
    """The one way to write the path of a mount; empty where it has none."""
    path = mount.get("mountPath") if isinstance(mount, dict) else None
    return posixpath.normpath("/" + path.lstrip("/")) if isinstance(path, str) and path else ""


def _has_checkpoint_volume(place: Place) -> bool:
    storage = place.job.spec.checkpoint.storage
    return not (storage and storage.path)
