"""No label, annotation, owner or finalizer of a job's author leads its pods to somebody else, at a real API server."""

import pytest
from trainmaster.wire import names

from .apiserver import Document
from .lab import TASK, Lab

RESERVED = {
    "app.kubernetes.io/name": "trainmaster",
    "app.kubernetes.io/instance": "trainmaster",
    names.LABEL_JOB: "victim",
    names.LABEL_ROLE: "worker",
    names.LABEL_INDEX: "7",
}


def job(labels: dict[str, str], metadata: Document) -> Document:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "digits", "labels": labels},
        "spec": {
            "strategy": {"type": "AllReduce"},
            "training": TASK,
            "workers": {"template": {"metadata": metadata}},
        },
    }


def selected(lab: Lab, labels: dict[str, str]) -> list[str]:
    """The names of the pods that a Service with this selector would have behind it."""
    query = ",".join(f"{name}={value}" for name, value in labels.items())
    return [
        pod["metadata"]["name"] for pod in lab.server.call("GET", f"{lab.core}/pods?labelSelector={query}")["items"]
    ]


def test_a_jobs_own_labels_put_no_pod_behind_anothers_service(bound: Lab) -> None:
    """The operator serves this one namespace, and no admission policy is there."""
    bound.server.call("POST", bound.jobs, job({**RESERVED, "team": "blue"}, {}))
    (pod,) = bound.await_pods("digits-worker-0-0")
    labels = pod["metadata"]["labels"]
    assert (labels[names.LABEL_JOB], labels[names.LABEL_INDEX], labels["team"]) == ("digits", "0", "blue")
    assert {name for name in labels if name.startswith("app.kubernetes.io/")} == {"app.kubernetes.io/managed-by"}
    assert selected(bound, {names.LABEL_JOB: "victim"}) == []
    assert selected(bound, {"app.kubernetes.io/name": "trainmaster"}) == []
    assert selected(bound, {names.LABEL_JOB: "digits"}) == ["digits-worker-0-0"]


@pytest.mark.parametrize("label", [*RESERVED, names.ANNOTATION_REVISION])
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_nor_do_those_of_its_template(lab: Lab, kind: str, label: str) -> None:
    if kind == "annotations" and label.startswith("app.kubernetes.io/"):
        return  # nobody is selected by an annotation
    reply = lab.server.try_call("POST", lab.jobs, job({}, {kind: {label: "trainmaster"}}))
    assert reply.status == 422
    assert "template" in str(reply.body["message"])


def test_a_template_gives_pods_no_other_owner_name_or_finalizer(lab: Lab) -> None:
    """With another owner pods would outlive their job or die with another; a finalizer would keep them for ever."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "0" * 32, "controller": True}
    foreign = {
        "ownerReferences": [owner],
        "finalizers": ["example.com/never"],
        "name": "other",
        "namespace": "kube-system",
    }
    lab.server.call("POST", lab.jobs, job({}, {**foreign, "annotations": {"example.com/mine": "kept"}}))
    (pod,) = lab.await_pods("digits-worker-0-0")
    metadata = pod["metadata"]
    assert [(one["kind"], one["name"]) for one in metadata["ownerReferences"]] == [(names.KIND, "digits")]
    assert metadata["namespace"] == lab.namespace
    assert metadata["annotations"]["example.com/mine"] == "kept"
    assert "finalizers" not in metadata
