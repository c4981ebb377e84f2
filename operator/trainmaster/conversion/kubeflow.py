"""Read PyTorchJob, TFJob, JAXJob, XGBoostJob and MPIJob of Kubeflow."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.conversion import commands, pod_templates
from trainmaster.conversion.source import ConversionError, Document, SourceObject, compact

_GANG = "has no counterpart yet: gangs and queues are not supported"
_POLICY = {
    "cleanPodPolicy": "has no counterpart: pods end with the job, and spec.ttlSecondsAfterFinished deletes it",
    "schedulingPolicy": _GANG,
    "managedBy": _GANG,
}
_LEFT = {
    "successPolicy": "has no counterpart: a job succeeds when all its workers have ended with 0",
    "enableDynamicWorker": "has no counterpart; see spec.elasticity",
    "runLauncherAsWorker": "has no counterpart: the first worker runs the command",
    "launcherCreationPolicy": "has no counterpart: the command starts when all replicas are there",
    "sshAuthMountPath": "is not needed: mpirun reaches the other replicas through Trainmaster's agent",
    "mainContainer": "has no counterpart",
}
_ELASTIC = "has no counterpart: the agents find each other without it"


@dataclass(frozen=True)
class KubeflowKind:
    """A kind has what is true of one kind of Kubeflow's jobs."""

    specs: str
    container: str
    roles: tuple[str, ...]  # that train, the one that leads first
    framework: str | None = None


KINDS = {
    "PyTorchJob": KubeflowKind("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "TFJob": KubeflowKind("tfReplicaSpecs", "tensorflow", ("Chief", "Master", "Worker"), "TensorFlow"),
    "JAXJob": KubeflowKind("jaxReplicaSpecs", "jax", ("Worker",), "JAX"),
    "XGBoostJob": KubeflowKind("xgbReplicaSpecs", "xgboost", ("Master", "Worker"), "XGBoost"),
    "MPIJob": KubeflowKind("mpiReplicaSpecs", "mpi", ("Worker",), "MPI"),
}


def convert(kind_name: str, spec: SourceObject) -> Document:
    """Return the spec of a TrainingJob.

    Raises:
        ConversionError: it has no replicas.
    """
    kind = KINDS[kind_name]
    roles = spec.part(kind.specs)
    if not roles:
        raise ConversionError(f"spec.{kind.specs} is missing: is this a {kind_name} of a version that has it?")
    made: Document = {}
    for policy in (spec.part("runPolicy"), spec):  # earlier versions have its fields in the spec itself
        policy.leave(_POLICY)
        made |= commands.run_policy(policy)
    made |= _elastic(spec.part("elasticPolicy"))
    launcher = _role(roles, "Launcher", "") if kind_name == "MPIJob" else None
    replicas, pod = _trainers(roles, kind)
    if launcher and pod is None:
        replicas, pod = 1, launcher[1]
    if pod is None:
        raise ConversionError(f"spec.{kind.specs} has none of {', '.join(kind.roles)}, and so nobody who trains")
    where = f"spec.{kind.specs}"
    workers = {"replicas": replicas, **pod.fields}
    words, told = commands.of_container(
        (launcher[1] if launcher else pod).command, f"{where}.{kind.roles[-1]}.command", workers, spec.notes
    )
    per_node = spec.text("nprocPerNode")
    if per_node and per_node.isdecimal() and int(per_node) > 1 and "gpus" not in pod.fields:
        spec.notes.add(
            "spec.nprocPerNode", "a replica without GPUs is one process here: raise workers.replicas instead"
        )
    if launcher:
        _mpi(spec, launcher[1], pod, workers)
    servers = _role(roles, "PS", kind.container)
    roles.leave({"Evaluator": "has no counterpart: make it a job of its own, which reads the checkpoints of this one"})
    spec.leave(_LEFT)
    training = compact([("framework", kind.framework), ("command", words), ("workingDirectory", pod.working_directory)])
    strategy = {"type": "ParameterServer" if servers is not None else "AllReduce"}
    made = {"strategy": strategy, "training": training, "workers": workers, **made}
    if servers:
        made["parameterServers"] = {"replicas": servers[0], **servers[1].fields}
    if "failurePolicy" in told:
        made.setdefault("failurePolicy", told["failurePolicy"])
    return made


def _trainers(roles: SourceObject, kind: KubeflowKind) -> tuple[int, pod_templates.Pod | None]:
    """Return how many replicas train, and the pod that all of them are to have: that of Worker where there is one."""
    found = [(name, *role) for name in kind.roles if (role := _role(roles, name, kind.container))]
    if not found:
        return 0, None
    leader, chosen = found[0], found[-1]
    differing = pod_templates.differing(leader[2], chosen[2])
    if differing:
        roles.notes.add(
            f"{roles.path}.{leader[0]}",
            f"differs from {chosen[0]} in {', '.join(differing)}. All replicas are alike here, as {chosen[0]} has it",
        )
        if "image" in leader[2].fields:
            chosen[2].fields.setdefault("image", leader[2].fields["image"])
        chosen[2].command = chosen[2].command or leader[2].command
    return sum(role[1] for role in found), chosen[2]


def _role(roles: SourceObject, name: str, container: str) -> tuple[int, pod_templates.Pod] | None:
    if name not in roles:
        return None
    role = roles.part(name)
    count = role.number("replicas")
    role.leave({"restartPolicy": "has no counterpart: Trainmaster restarts training itself, by spec.failurePolicy"})
    return (1 if count is None else count), pod_templates.read(role.part("template"), container)


def _elastic(policy: SourceObject) -> Document:
    if not policy:
        return {}
    least, most = policy.number("minReplicas"), policy.number("maxReplicas")
    per_node = policy.number("nProcPerNode")
    if per_node and per_node > 1:
        policy.notes.add(f"{policy.path}.nProcPerNode", "is workers.gpus here, one process for each")
    policy.leave(dict.fromkeys(("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone"), _ELASTIC))
    policy.leave({"metrics": "has no counterpart: the number of workers changes with what the cluster has room for"})
    made: Document = {}
    if most:
        made["elasticity"] = compact([("minReplicas", least), ("maxReplicas", most)])
    if "maxRestarts" in policy:
        made["failurePolicy"] = commands.restarts(policy, "maxRestarts")
    return made


def _mpi(spec: SourceObject, launcher: pod_templates.Pod, worker: pod_templates.Pod, workers: Document) -> None:
    """Note what is otherwise with MPI: the first worker launches, and slots come from GPUs or cores."""
    slots = spec.number("slotsPerWorker")
    if slots and slots > 1 and "gpus" not in workers and pod_templates.cores(workers.get("cpu")) != slots:
        workers["cpu"] = slots
        spec.notes.add(
            "spec.slotsPerWorker", f"became cpu: {slots}: a replica has as many slots as whole cores, or gpus"
        )
    implementation = spec.text("mpiImplementation")
    if implementation not in (None, "OpenMPI"):
        spec.notes.add("spec.mpiImplementation", f"{implementation} is not supported: only Open MPI is")
    if "image" in launcher.fields and launcher.fields["image"] != worker.fields.get("image", launcher.fields["image"]):
        spec.notes.add("spec.mpiReplicaSpecs.Launcher", "has another image: the first worker runs the command here")
    elif others := [name for name in launcher.fields if name not in ("image", "template")]:
        spec.notes.add(
            "spec.mpiReplicaSpecs.Launcher",
            f"its {', '.join(others)} are left out: there is no pod of its own, the first worker runs the command",
        )
    worker.command = []
