"""Build the container that trains, its mounts, and the init container for a user's own image. It is pure.

The trainer image has everything in it. An image of the user's own needs only Python and what its program imports: an
init container copies agent and trainer into it, from an image that has nothing else.
"""

import posixpath
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.policies import Storage
from trainmaster.api.roles import ReplicaSpec
from trainmaster.cluster import code_volumes
from trainmaster.core.replica_environment import agent_environment
from trainmaster.core.situation.grace import FOR_LAST_WORDS, grace_seconds
from trainmaster.wire import names

Document = dict[str, Any]

# Where the trainer image has Python, and where it and the agent image have `trainmaster` and `trainmaster_trainer`
# (images/trainer/Dockerfile, images/agent/Dockerfile).
PYTHON_IN_IMAGE = "/opt/venv/bin/python3"
CODE_IN_IMAGE = "/opt/trainmaster/lib"
# Where `trainmaster` and `trainmaster_trainer` are in a user's own image.
CODE_FOLDER = "/trainmaster"
TOKEN_FOLDER = "/var/run/secrets/trainmaster"
CHECKPOINT_FOLDER = "/checkpoints"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  a mount of the pod's own
TEMPORARY = "/tmp"  # noqa: S108  likewise
# The agent's own folder. The user may mount anything at /tmp.
SCRATCH_FOLDER = "/run/trainmaster"

# -I: neither variables nor modules in the working directory (a `random.py` of the user) can change the agent.
_START = "trainmaster_trainer/agent/start.py"
# Modes and owners are not copied: the emptyDir's top folder belongs to root, and setting them would fail.
_INSTALL = f"cp -R {CODE_IN_IMAGE}/. {CODE_FOLDER}"


# The resources that any container may request. Only the trainer requests devices.
_OF_ANY_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True)
class PodSettings:
    """Hold what is the same for all pods of an operator."""

    operator_url: str
    trainer_image: str
    pull_policy: str | None = None
    agent_image: str = "trainmaster/agent:dev"
    network_policy: bool = False  # whether each job gets one, which only its own pods pass
    default_storage: Storage | None = None  # of jobs that name none


@dataclass(frozen=True)
class ReplicaPlace:
    """A place is one replica of one job: role, index and incarnation."""

    job: TrainingJob
    role: str
    index: int
    incarnation: int

    @property
    def spec(self) -> ReplicaSpec:
        """Return what the job says about all replicas of this role."""
        return self.job.spec.roles[self.role]

    @property
    def name(self) -> str:
        """Return the pod's name."""
        return names.replica_name(self.job.name, self.role, self.index, self.incarnation)

    @cached_property
    def template(self) -> Document:
        """Return the template's pod spec; empty if there is none."""
        template = self.spec.template.to_dict() if self.spec.template else {}
        return template.get("spec") or {}

    @cached_property
    def trainer_template(self) -> Document:
        """Return what the template says about the container that trains."""
        containers = self.template.get("containers") or []
        return next((one for one in containers if one["name"] == names.MAIN_CONTAINER), {})

    @property
    def own_image(self) -> str | None:
        """Return the user's image; None if the pod uses the operator's trainer image."""
        return self.spec.image or self.trainer_template.get("image")


def folder(job: TrainingJob) -> str:
    """Return the folder of this job's checkpoints inside the pods. On a claim each job has a folder of its own."""
    storage = job.spec.checkpoint.storage
    if storage and storage.path:
        return storage.path
    if storage and storage.persistent_volume_claim:
        return f"{CHECKPOINT_FOLDER}/{job.name}-{job.uid[:8]}"
    return CHECKPOINT_FOLDER


def trainer(place: ReplicaPlace, settings: PodSettings) -> Document:
    """Return the container that trains: what the spec names, and what the agent needs."""
    named = place.spec.to_dict()
    given = place.template.get("terminationGracePeriodSeconds")
    grace = given if isinstance(given, int) and given else grace_seconds(place.job)
    ours = {
        **agent_environment(place.job, place.role, place.index, place.incarnation),
        names.ENV_OPERATOR: settings.operator_url,
        names.ENV_TOKEN_FILE: f"{TOKEN_FOLDER}/token",
        names.ENV_CHECKPOINTS: folder(place.job),
        names.ENV_SCRATCH: SCRATCH_FOLDER,
        names.ENV_GRACE: str(max(0, grace - FOR_LAST_WORDS)),
        **code_volumes.variables(place.job.spec.training),
    }
    # Only Kubernetes knows the pod's uid and address, once it exists.
    paths = {names.ENV_POD_UID: "metadata.uid", names.ENV_ADDRESS: "status.podIP"}
    downward = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]
    container: Document = {
        "name": names.MAIN_CONTAINER,
        "image": place.own_image or settings.trainer_image,
        "command": agent_command(place.own_image),
        # Ours come first, so that the user's can refer to them, as in $(TRAINMASTER_INDEX).
        "env": [
            *downward,
            *variables(ours),
            *code_volumes.secrets(place.job.spec.training.code),
            *(item for item in named.get("env", []) if item["name"] not in ours),
        ],
        "resources": resources(place.spec),
        "volumeMounts": _mounts(place, named.get("volumeMounts", [])),
    }
    storage = place.job.spec.checkpoint.storage
    if storage and storage.object_store and storage.object_store.secret_name:
        named["envFrom"] = [*named.get("envFrom", []), {"secretRef": {"name": storage.object_store.secret_name}}]
    theirs = place.spec.image_pull_policy or place.trainer_template.get("imagePullPolicy")
    pull_policy = theirs or (None if place.own_image else settings.pull_policy)
    more = {"imagePullPolicy": pull_policy, "envFrom": named.get("envFrom")}
    return {**container, **{key: value for key, value in more.items() if value}}


def agent_command(own_image: str | None) -> list[str]:
    """Return the agent's command line. In a user's own image, Python is found by PATH."""
    python, code = ("python3", CODE_FOLDER) if own_image else (PYTHON_IN_IMAGE, CODE_IN_IMAGE)
    return [python, "-I", f"{code}/{_START}"]


def installer(settings: PodSettings) -> Document:
    """Return the init container that copies the agent and the trainer into the user's image."""
    container: Document = {
        "name": names.INSTALLER_CONTAINER,
        "image": settings.agent_image,
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


def volumes(place: ReplicaPlace) -> list[Document]:
    """Return the volumes that Trainmaster adds to the pod."""
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
    return [*made, *code_volumes.volumes(place.job.spec.training)]


def resources(replica: ReplicaSpec) -> Document:
    """Return requests and limits.

    Memory has a limit. CPU has none: a limit would stop a rank for the rest of each 100 ms.
    """
    asked = {name: str(amount) for name, amount in (("cpu", replica.cpu), ("memory", replica.memory)) if amount}
    limits = {"memory": asked["memory"]} if "memory" in asked else {}
    if replica.gpus and not replica.claims_devices:
        limits[replica.device_resource] = str(replica.gpus)
    return {key: value for key, value in (("requests", asked), ("limits", limits)) if value}


def variables(values: dict[str, str]) -> list[Document]:
    """Return these variables as a container's `env`. The kubelet gives them on as they are: for it, `$$` is one `$`."""
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in values.items()]


def _mounts(place: ReplicaPlace, given: list[Document]) -> list[Document]:
    """Return the user's mounts and ours.

    Ours at /dev/shm, /tmp and the checkpoints are left out where the user mounts something.
    """
    usual = {"trainmaster-shm": SHARED_MEMORY, "trainmaster-tmp": TEMPORARY}
    storage = place.job.spec.checkpoint.storage
    if not (storage and storage.path):
        usual["trainmaster-checkpoints"] = CHECKPOINT_FOLDER
    beneath = place.trainer_template.get("volumeMounts") or []
    taken = {mount_path(mount) for mount in (*given, *beneath)}
    mounts = [*given, *({"name": name, "mountPath": path} for name, path in usual.items() if path not in taken)]
    mounts.append({"name": "trainmaster-scratch", "mountPath": SCRATCH_FOLDER})
    mounts.append({"name": "trainmaster-token", "mountPath": TOKEN_FOLDER, "readOnly": True})
    if place.own_image:
        mounts.append({"name": "trainmaster-code", "mountPath": CODE_FOLDER, "readOnly": True})
    return [*mounts, *code_volumes.mounts(place.job.spec.training)]


def mount_path(mount: Any) -> str:
    """Return the normalized path of a mount; empty where it has none."""
    path = mount.get("mountPath") if isinstance(mount, dict) else None
    return posixpath.normpath("/" + path.lstrip("/")) if isinstance(path, str) and path else ""
