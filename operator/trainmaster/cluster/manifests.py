"""Make a Pod of a job and one of its replicas, and the job's headless Service.

It is pure: the same input gives the same output. There are three layers: our defaults, the user's template over them,
and on top what the job's spec names and what the agent needs.
"""

from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.overlay import lay
from trainmaster.api.roles import GPU_MODEL, TPU
from trainmaster.cluster import container
from trainmaster.cluster.affinity import keeping_away
from trainmaster.cluster.container import PodSettings, ReplicaPlace
from trainmaster.cluster.variable_renaming import sheltered
from trainmaster.core.failures.avoided import in_force
from trainmaster.core.situation import revision
from trainmaster.core.situation.grace import grace_seconds
from trainmaster.wire import names

__all__ = ["Document", "PodSettings", "TemplateError", "labels", "metadata", "of_another", "pod", "service"]

Document = dict[str, Any]

USER = 65532
_NODE_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FROM_TEMPLATE = ("labels", "annotations")
_PASSED_ON = ("affinity", "priorityClassName", "imagePullSecrets", "serviceAccountName")


class TemplateError(Exception):
    """No pod can be made of what a role says. The text names the field."""


def labels(job: TrainingJob) -> dict[str, str]:
    """Return the labels that all objects of a job carry."""
    return {"app.kubernetes.io/managed-by": "trainmaster", names.LABEL_JOB: job.name}


def metadata(job: TrainingJob) -> Document:
    """Return the metadata of an object of which a job has one."""
    return {"name": job.name, "namespace": job.namespace, "labels": labels(job), "ownerReferences": [_owner(job)]}


def service(job: TrainingJob) -> Document:
    """Return the headless Service. It gives each replica a DNS name, also before the replica is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: job.name},
        },
    }


def pod(job: TrainingJob, role: str, index: int, incarnation: int, settings: PodSettings) -> Document:
    """Return the pod of one replica.

    Raises:
        TemplateError: what the role says is of a shape that no pod has, and that the CRD does not see.
    """
    place = ReplicaPlace(job, role, index, incarnation)
    try:
        return _pod(place, settings)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise TemplateError(f"spec.{role}s: no pod can be made of it ({what})") from error


def of_another(pod: Document, job: TrainingJob, role: str, index: int, incarnation: int) -> Document:
    """Return the pod of another replica of the same job and role as `pod`: a copy with what names the replica."""
    name = names.replica_name(job.name, role, index, incarnation)
    labels = {names.LABEL_INDEX: str(index), names.LABEL_INCARNATION: str(incarnation)}
    variables = {names.ENV_INDEX: str(index), names.ENV_INCARNATION: str(incarnation)}

    def filled(variable: Any) -> Any:
        known = isinstance(variable, dict) and variable.get("name") in variables
        return {**variable, "value": variables[variable["name"]]} if known else variable

    metadata, spec = pod["metadata"], pod["spec"]
    containers = [
        {**one, "env": [filled(variable) for variable in one["env"]]} if _is_trainer(one) else one
        for one in spec["containers"]
    ]
    return {
        **pod,
        "metadata": {**metadata, "name": name, "labels": {**metadata["labels"], **labels}},
        "spec": {**spec, "hostname": name, "containers": containers},
    }


def _pod(place: ReplicaPlace, settings: PodSettings) -> Document:
    job, role = place.job, place.role
    template = place.spec.template.to_dict() if place.spec.template else {}
    spec = lay(lay(_defaults(place), template.get("spec") or {}), _spec(place, settings))
    spec = keeping_away(spec, [node.node for node in in_force(job.status)])
    amounts = next((container.modest(one.get("resources")) for one in spec["containers"] if _is_trainer(one)), {})
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [_finished(one, amounts) for one in spec[kind]]
    identity = {names.LABEL_ROLE: role, names.LABEL_INDEX: str(place.index)}
    identity[names.LABEL_INCARNATION] = str(place.incarnation)
    described = {
        "name": place.name,
        "namespace": job.namespace,
        "labels": {**labels(job), **identity},
        "annotations": {names.ANNOTATION_REVISION: revision.revision_of(job, role)},
        "ownerReferences": [_owner(job)],
    }
    for label in (template.get("metadata") or {}).get("labels") or ():
        if label.startswith(names.RESERVED_LABELS):  # the CRD says so too, but may be older than this operator
            raise ValueError(f"template.metadata.labels: {label} is Trainmaster's own; use a prefix of your own")
    beneath = {key: value for key, value in (template.get("metadata") or {}).items() if key in _FROM_TEMPLATE}
    # The author's labels, for costs and network policies. Reserved ones stay on the job: the Service of the operator
    # selects pods by them, and so does the admission policy.
    own = job.metadata.labels.items()
    own_labels = {
        key: value for key, value in own if f"{names.GROUP}/" not in key and not key.startswith(names.RESERVED_LABELS)
    }
    told = lay(lay({"labels": own_labels}, beneath), described)  # the template speaks of the pods alone
    return {"apiVersion": "v1", "kind": "Pod", "metadata": told, "spec": spec}


def _is_trainer(one: Any) -> bool:
    return isinstance(one, dict) and one.get("name") == names.MAIN_CONTAINER


def _finished(one: Any, amounts: Document) -> Any:
    """Return a container with what is added last to each.

    Its log tells how it ended. The installer gets `amounts` as resources. In the trainer, the user's variables cannot
    change how the agent starts.
    """
    if not isinstance(one, dict):
        return one  # a typing error in a template: the API server says what is wrong with it
    told = {"terminationMessagePolicy": "FallbackToLogsOnError", **one}
    if one.get("name") == names.INSTALLER_CONTAINER:
        return {**told, "resources": amounts}
    return {**told, "env": sheltered(one["env"])} if _is_trainer(one) else told


def _owner(job: TrainingJob) -> Document:
    """Return the owner reference. It does not block the owner's deletion, which would need a right on finalizers."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _defaults(place: ReplicaPlace) -> Document:
    """Return the defaults, which a template may overrule. They fit Kubernetes' "restricted" Pod Security level."""
    hardening: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if place.own_image is None:
        hardening["readOnlyRootFilesystem"] = True  # the trainer image works with it; a user's image may not
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds(place.job),
        # torch looks up its peers' names at every start, only to log them. With a broken DNS that must not take ten
        # seconds each time.
        "dnsConfig": {"options": [{"name": "timeout", "value": "1"}, {"name": "attempts", "value": "2"}]},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{"name": names.MAIN_CONTAINER, "securityContext": hardening}],
    }


def _spec(place: ReplicaPlace, settings: PodSettings) -> Document:
    """Return the part of the pod spec that the job names, and what the agent needs."""
    named = place.spec.to_dict()
    given = named.get("tolerations", [])
    beneath = place.template.get("tolerations") or []
    # NVIDIA's feature discovery labels nodes with their GPU; a TPU has no such label.
    wanted = place.spec.accelerator
    gpu_model = {GPU_MODEL: wanted} if wanted and wanted != TPU else {}
    more = {
        "nodeSelector": {**gpu_model, **named.get("nodeSelector", {})},
        "tolerations": [*given, *_patience(place.job, [*beneath, *given])],
        "initContainers": [container.installer(settings)] if place.own_image else [],
    }
    return {
        **{key: named[key] for key in _PASSED_ON if key in named},
        "restartPolicy": "Never",
        "hostname": place.name,
        "subdomain": place.job.name,
        "volumes": [*named.get("volumes", []), *container.volumes(place)],
        "containers": [container.trainer(place, settings)],
        **{key: value for key, value in more.items() if value},
    }


def _patience(job: TrainingJob, given: list[Document]) -> list[Document]:
    """Return tolerations: a pod may stay `failurePolicy.nodeLostSeconds` on a node that does not answer."""
    limit = job.spec.failure_policy.node_lost_seconds
    named = {toleration.get("key") for toleration in given if isinstance(toleration, dict)}
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": limit}
        for key in _NODE_LOST
        if limit is not None and key not in named
    ]
