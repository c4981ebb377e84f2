"""A job and one of its replicas to a Pod, and the job's headless Service: pure, and the same at every call.

Called by `platform` and by cli/render.py. Three layers: our defaults, the user's template over them, and on top what
the job's spec names and what the agent needs to work at all.
"""

from dataclasses import dataclass
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.replicas import ReplicaSpec
from trainmaster.cluster.overlay import lay
from trainmaster.core.environment import agent_environment
from trainmaster.wire import names

Document = dict[str, Any]

# Where the trainer image has `trainmaster` and `trainmaster_trainer` (images/trainer/Dockerfile).
CODE_IN_IMAGE = "/opt/trainmaster/lib"
# Where a user's own image finds them.
CODE_FOLDER = "/trainmaster"
TOKEN_FOLDER = "/var/run/secrets/trainmaster"
TOKEN_SECONDS = 3600
CHECKPOINT_FOLDER = "/checkpoints"
SCRATCH_FOLDER = "/tmp/trainmaster"  # noqa: S108  a mount of the pod's own
USER = 65532
GRACE_SECONDS = 30

# `python3 /trainmaster` runs this. Processes that the agent starts find the code by PYTHONPATH, ahead of the image's.
_START = f"""import os, runpy, sys
path = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = "{CODE_FOLDER}" + (os.pathsep + path if path else "")
runpy.run_module("trainmaster_trainer.agent", run_name="__main__", alter_sys=True)
"""
_INSTALL = (
    "import pathlib, shutil, sys\n"
    f"shutil.copytree({CODE_IN_IMAGE!r}, {CODE_FOLDER!r}, dirs_exist_ok=True,"
    " ignore=shutil.ignore_patterns('__pycache__'))\n"
    f"pathlib.Path({CODE_FOLDER + '/__main__.py'!r}).write_text(sys.argv[1])\n"
)


@dataclass(frozen=True)
class PodSettings:
    """What all pods of an operator share."""

    operator_url: str
    trainer_image: str
    pull_policy: str | None = None


def folder(job: TrainingJob) -> str:
    """Where the pods find this job's checkpoints. On a claim each job has a folder of its own."""
    storage = job.spec.checkpoint.storage
    if storage and storage.path:
        return storage.path
    if storage and storage.persistent_volume_claim:
        return f"{CHECKPOINT_FOLDER}/{job.name}-{job.uid[:8]}"
    return CHECKPOINT_FOLDER


def labels(job: TrainingJob) -> dict[str, str]:
    """What all objects of a job carry."""
    return {"app.kubernetes.io/managed-by": "trainmaster", names.LABEL_JOB: job.name}


def service(job: TrainingJob) -> Document:
    """The headless Service: a DNS name per replica, also before it is ready, for frameworks that want names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": labels(job),
            "ownerReferences": [_owner(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: job.name},
        },
    }


def pod(job: TrainingJob, role: str, index: int, incarnation: int, settings: PodSettings) -> Document:
    """The pod of one replica."""
    replica = job.spec.roles[role]
    template = replica.template.to_dict() if replica.template else {}
    name = names.replica_name(job.name, role, index, incarnation)
    identity = {names.LABEL_ROLE: role, names.LABEL_INDEX: str(index), names.LABEL_INCARNATION: str(incarnation)}
    container = _container(job, role, index, incarnation, settings)
    spec = lay(lay(_defaults(replica), template.get("spec") or {}), _spec(job, replica, name, container, settings))
    metadata = {
        "name": name,
        "namespace": job.namespace,
        "labels": {**labels(job), **identity},
        "ownerReferences": [_owner(job)],
    }
    beneath = {key: value for key, value in (template.get("metadata") or {}).items() if key in _FROM_TEMPLATE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": lay(beneath, metadata), "spec": spec}


_FROM_TEMPLATE = ("labels", "annotations")


def _owner(job: TrainingJob) -> Document:
    """`blockOwnerDeletion` would ask for a right on finalizers, and nobody needs to wait for pods."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _defaults(replica: ReplicaSpec) -> Document:
    """Good manners, which a template may overrule. They fit Kubernetes' "restricted" Pod Security level."""
    hardening: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if replica.image is None:
        hardening["readOnlyRootFilesystem"] = True  # ours needs no more; of a user's image we do not know
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": names.MAIN_CONTAINER,
                "securityContext": hardening,
                # Libraries look up who they are, and a number without a name is an error to some.
                "env": _env({"HOME": "/tmp", "USER": "trainmaster", "PYTHONUNBUFFERED": "1"}),  # noqa: S108
            }
        ],
    }


def _spec(job: TrainingJob, replica: ReplicaSpec, name: str, container: Document, settings: PodSettings) -> Document:
    """What the job's spec names, and what the agent cannot do without."""
    named = replica.to_dict()
    passed_on = {key: named[key] for key in _PASSED_ON if key in named}
    spec: Document = {
        **passed_on,
        "restartPolicy": "Never",
        "hostname": name,
        "subdomain": job.name,
        "tolerations": [*named.get("tolerations", []), *_patience(job, named.get("tolerations", []))],
        "volumes": [*named.get("volumes", []), *_volumes(job, replica)],
        "containers": [container],
    }
    if replica.image is not None:
        spec["initContainers"] = [_installer(settings)]
    return spec if spec["tolerations"] else {key: value for key, value in spec.items() if key != "tolerations"}


_PASSED_ON = ("nodeSelector", "affinity", "priorityClassName", "imagePullSecrets", "serviceAccountName")


def _container(job: TrainingJob, role: str, index: int, incarnation: int, settings: PodSettings) -> Document:
    replica = job.spec.roles[role]
    named = replica.to_dict()
    pull_policy = replica.image_pull_policy or (settings.pull_policy if replica.image is None else None)
    ours = {
        **agent_environment(job, role, index, incarnation),
        names.ENV_OPERATOR: settings.operator_url,
        names.ENV_TOKEN_FILE: f"{TOKEN_FOLDER}/token",
        names.ENV_CHECKPOINTS: folder(job),
        names.ENV_SCRATCH: SCRATCH_FOLDER,
    }
    container: Document = {
        "name": names.MAIN_CONTAINER,
        "image": replica.image or settings.trainer_image,
        "command": ["python3", "-m", "trainmaster_trainer.agent"]
        if replica.image is None
        else ["python3", CODE_FOLDER],
        # Ours first: the user's may refer to them as $(TRAINMASTER_INDEX).
        "env": [*_downward(), *_env(ours), *(item for item in named.get("env", []) if item["name"] not in ours)],
        "resources": _resources(replica),
        "volumeMounts": _mounts(job, replica, named.get("volumeMounts", [])),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    more = {"imagePullPolicy": pull_policy, "envFrom": named.get("envFrom")}
    return {**container, **{key: value for key, value in more.items() if value}}


def _env(variables: dict[str, str]) -> list[Document]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _downward() -> list[Document]:
    """What only Kubernetes knows, and only once the pod is there."""
    paths = {names.ENV_POD_UID: "metadata.uid", names.ENV_ADDRESS: "status.podIP"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def _resources(replica: ReplicaSpec) -> Document:
    """Memory is a hard limit. CPU is a share only: a limit would stall a rank for the rest of every 100 ms."""
    asked = {name: str(amount) for name, amount in (("cpu", replica.cpu), ("memory", replica.memory)) if amount}
    limits = {"memory": asked["memory"]} if "memory" in asked else {}
    if replica.gpus:
        limits[replica.gpu_resource] = str(replica.gpus)
    return {key: value for key, value in (("requests", asked), ("limits", limits)) if value}


def _volumes(job: TrainingJob, replica: ReplicaSpec) -> list[Document]:
    storage = job.spec.checkpoint.storage
    token = {"audience": names.TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    volumes: list[Document] = [
        # A container has 64 MB of shared memory by default: too little for data loaders and for NCCL.
        {"name": "trainmaster-shm", "emptyDir": {"medium": "Memory"}},
        {"name": "trainmaster-tmp", "emptyDir": {}},
        {"name": "trainmaster-token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    if storage and storage.persistent_volume_claim:
        claim = {"claimName": storage.persistent_volume_claim.claim_name}
        volumes.append({"name": "trainmaster-checkpoints", "persistentVolumeClaim": claim})
    elif not (storage and storage.path):
        volumes.append({"name": "trainmaster-checkpoints", "emptyDir": {}})
    if replica.image is not None:
        volumes.append({"name": "trainmaster-code", "emptyDir": {}})
    return volumes


def _mounts(job: TrainingJob, replica: ReplicaSpec, given: list[Document]) -> list[Document]:
    """The user's, and ours where the user has none: a large volume on /tmp, say, is for the user to choose."""
    storage = job.spec.checkpoint.storage
    usual = {"trainmaster-shm": "/dev/shm", "trainmaster-tmp": "/tmp"}  # noqa: S108
    if not (storage and storage.path):
        usual["trainmaster-checkpoints"] = CHECKPOINT_FOLDER
    taken = {mount["mountPath"].rstrip("/") for mount in given}
    mounts = [*given, *({"name": name, "mountPath": path} for name, path in usual.items() if path not in taken)]
    mounts.append({"name": "trainmaster-token", "mountPath": TOKEN_FOLDER, "readOnly": True})
    if replica.image is not None:
        mounts.append({"name": "trainmaster-code", "mountPath": CODE_FOLDER, "readOnly": True})
    return mounts


def _installer(settings: PodSettings) -> Document:
    """Brings the agent and the trainer into an image that has only Python (and torch, to train)."""
    installer: Document = {
        "name": "trainmaster-code",
        "image": settings.trainer_image,
        "command": ["python3", "-c", _INSTALL, _START],
        "volumeMounts": [{"name": "trainmaster-code", "mountPath": CODE_FOLDER}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {**installer, "imagePullPolicy": settings.pull_policy} if settings.pull_policy else installer


def _patience(job: TrainingJob, given: list[Document]) -> list[Document]:
    """How long a pod may stay on a node that does not answer (`failurePolicy.nodeLostSeconds`)."""
    limit = job.spec.failure_policy.node_lost_seconds
    if limit is None:
        return []
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    named = {toleration.get("key") for toleration in given}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": limit}
        for key in keys
        if key not in named
    ]
