"""Pods that are copies of the one before are as if each had been made by itself."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pydantic import ValidationError
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import manifests
from trainmaster.cluster.pod_maker import PodMaker
from trainmaster.wire import names

from tests.api.random_specs import random_jobs
from tests.builders import a_job

from .test_manifests import SETTINGS

Document = dict[str, Any]
REPLICAS = [(0, 0), (7, 0), (10, 3), (0, 12)]
ODD_TEMPLATES: dict[str, Document] = {
    "names of ours": {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"index": "0"}},
        "spec": {
            "hostname": "mine",
            "containers": [{"name": "trainer", "env": [{"name": names.ENV_INDEX, "value": "9"}, {"name": "A"}]}],
        },
    },
    "a sidecar with names of ours": {
        "spec": {"containers": [{"name": "beside", "image": "x", "env": [{"name": names.ENV_INDEX, "value": "9"}]}]}
    },
    "references": {
        "spec": {
            "containers": [
                {"name": "trainer", "env": [{"name": "RANK", "value": f"$({names.ENV_INDEX})-digits-worker-0-0"}]}
            ]
        }
    },
}


def assert_alike(job: TrainingJob) -> None:
    maker = PodMaker(SETTINGS)
    for role in job.spec.roles:
        for index, incarnation in REPLICAS:
            alone = manifests.pod(job, role, index, incarnation, SETTINGS)
            assert json.dumps(maker.pod(job, role, index, incarnation)) == json.dumps(alone)


@pytest.mark.parametrize("template", ODD_TEMPLATES.values(), ids=[*ODD_TEMPLATES])
def test_a_template_changes_copies_as_it_changes_the_first(template: Document) -> None:
    assert_alike(a_job().with_workers(2, template=template, image="user/image:1").build())


@given(document=random_jobs())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_pods_of_any_job_are_as_if_made_alone(document: Document) -> None:
    metadata = {"namespace": "lab", "uid": "job-1", **document["metadata"]}
    try:
        job = TrainingJob.parse({**document, "metadata": metadata})
        manifests.pod(job, names.WORKER, 0, 0, SETTINGS)
    except (ValidationError, ValueError, manifests.TemplateError):
        assume(False)
    assert_alike(job)


def test_a_thousand_pods_of_a_role_are_made_from_one() -> None:
    job, maker = a_job().with_workers(1000).build(), PodMaker(SETTINGS)
    pods = [maker.pod(job, names.WORKER, index, 0) for index in range(1000)]
    assert len({id(pod["spec"]["volumes"]) for pod in pods}) == 1
    assert len({pod["metadata"]["name"] for pod in pods}) == 1000


def test_what_has_changed_since_is_in_the_next_pod() -> None:
    maker, job = PodMaker(SETTINGS), a_job().with_workers(2, image="old")
    for image in ("old", "new"):
        pod = maker.pod(job.with_workers(2, image=image).build(), names.WORKER, 1, 0)
        assert [one["image"] for one in pod["spec"]["containers"]] == [image]
