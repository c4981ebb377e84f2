"""The pod of a TrainingJob as the operator makes it, and ways to spoil it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

from .tools import Object

Spoil = Callable[[Object], object]


def owner(name: str = "digits", **changes: object) -> Object:
    """The reference to the TrainingJob that owns it."""
    uid = "6f1d3c1e-0000-4000-8000-000000000001"
    reference: Object = {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {**reference, **changes}


def metadata(name: str) -> Object:
    """Names, labels and owner of what the operator makes for the job `digits`."""
    return {"name": name, "labels": {"trainmaster.dev/job": "digits"}, "ownerReferences": [owner()]}


def good_pod() -> Object:
    """A pod that the operator may create."""
    token = {"serviceAccountToken": {"audience": "trainmaster", "path": "token", "expirationSeconds": 3600}}
    container: Object = {
        "name": "trainer",
        "image": "trainmaster/trainer:dev",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "readinessProbe": {"httpGet": {"port": 80}},
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    }
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "token", "projected": {"sources": [token]}},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata("digits-worker-0-0"), "spec": spec}


def good_service() -> Object:
    """A Service that the operator may create."""
    spec = {"clusterIP": "None", "selector": {"trainmaster.dev/job": "digits"}, "ports": [{"port": 1234}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata("digits"), "spec": spec}


def good_network_policy() -> Object:
    """A NetworkPolicy that the operator may create."""
    own = {"podSelector": {"matchLabels": {"trainmaster.dev/job": "digits"}}}
    spec = {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata("digits"), "spec": spec}


@dataclass(frozen=True)
class Attack:
    """A change to a good object, and what the refusal must speak of."""

    name: str
    spoil: Spoil
    refusal: str

    def on(self, good: Object) -> Object:
        """The spoilt object."""
        bad = copy.deepcopy(good)
        self.spoil(bad)
        return bad


def spec(**changes: object) -> Spoil:
    """Set fields of the spec."""
    return lambda thing: thing["spec"].update(changes)


def without(field: str) -> Spoil:
    """Leave a field of the spec out."""
    return lambda thing: thing["spec"].pop(field)


def meta(**changes: object) -> Spoil:
    """Set fields of the metadata."""
    return lambda thing: thing["metadata"].update(changes)


def volume(**source: object) -> Spoil:
    """Add a volume."""
    return lambda pod: pod["spec"]["volumes"].append({"name": "loot", **source})


def container(**changes: object) -> Spoil:
    """Set fields of the container."""
    return lambda pod: pod["spec"]["containers"][0].update(changes)


def secured(**changes: object) -> Spoil:
    """Set fields of the container's security context."""
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(changes)


def pod_secured(**changes: object) -> Spoil:
    """Set fields of the pod's security context."""
    return lambda pod: pod["spec"]["securityContext"].update(changes)


def beside(field: str) -> Spoil:
    """Add a second container that is root and privileged, under initContainers or containers."""
    bad = {"name": "beside", "image": "x", "securityContext": {"privileged": True, "runAsUser": 0}}
    return lambda pod: pod["spec"].setdefault(field, []).append(bad)
