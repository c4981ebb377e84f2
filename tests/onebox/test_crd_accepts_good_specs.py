"""A real API server accepts good specs, fills in the models' own defaults, and lets running jobs change a little."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from trainmaster.api.job import TrainingJob

from tests.api.changes import changed, good_job
from tests.api.good_specs import GOOD_SPECS
from tests.api.test_rules import ALLOWED, REFUSED
from tests.onebox.crd_server import Cluster, CrdServer, crd_server

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[CrdServer]:
    with crd_server(cluster) as server:
        yield server


@pytest.mark.parametrize("job", GOOD_SPECS.values(), ids=GOOD_SPECS.keys())
def test_accepted_and_defaulted_like_the_models(server: CrdServer, job: dict[str, Any]) -> None:
    """So that an operator and a laptop see the same job."""
    answer = server.would_create(job)

    assert answer.accepted, answer.refusal
    stored = TrainingJob.parse(answer.job)
    assert stored.spec == TrainingJob.parse(job).spec
    assert stored.spec.to_dict() == answer.job["spec"]


@pytest.fixture(scope="module")
def jobs(server: CrdServer) -> CrdServer:
    """With a job that runs, one that is suspended and one that is over."""
    for name, suspend in (("runs", False), ("suspended", True), ("over", False)):
        job = changed(good_job(), {"metadata": {"name": name}, "spec.suspend": suspend})
        server.kubectl("create", "--filename=-", stdin=json.dumps(job))
    for name, phase in (("suspended", "Suspended"), ("over", "Succeeded")):
        patch = json.dumps({"status": {"phase": phase}})  # as an operator writes it, should one watch
        server.kubectl("patch", "tj", name, "--subresource=status", "--type=merge", f"--patch={patch}")
    return server


def _patch(change: dict[str, Any]) -> dict[str, Any]:
    return changed({}, change)


@pytest.mark.parametrize(("field", "change"), REFUSED.items(), ids=REFUSED.keys())
def test_fixed_while_it_runs(jobs: CrdServer, field: str, change: dict[str, Any]) -> None:
    """With the field and the way around."""
    answer = jobs.would_change("runs", _patch(change))

    assert f"{field} cannot change while the job runs. Set suspend to true first" in answer.refusal


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED.keys())
def test_free_while_it_runs(jobs: CrdServer, change: dict[str, Any]) -> None:
    """The number of workers, and how to treat failures."""
    assert jobs.would_change("runs", _patch(change)).accepted


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_free_while_suspended(jobs: CrdServer, change: dict[str, Any]) -> None:
    """Nothing runs, so nothing can be torn."""
    assert jobs.would_change("suspended", _patch(change)).accepted


@pytest.mark.parametrize("change", [*REFUSED.values(), *ALLOWED.values()], ids=[*REFUSED, *ALLOWED])
def test_a_job_that_is_over_says_so(jobs: CrdServer, change: dict[str, Any]) -> None:
    """No suspension would ever come of it."""
    refusal = jobs.would_change("over", _patch(change)).refusal

    assert "the job is over, and takes no change but of ttlSecondsAfterFinished. Create another job" in refusal
    assert "suspend to true" not in refusal


def test_a_job_that_is_over_may_be_kept_for_another_time(jobs: CrdServer) -> None:
    assert jobs.would_change("over", {"spec": {"ttlSecondsAfterFinished": 7}}).accepted


def test_arguments_are_fixed_too(jobs: CrdServer) -> None:
    """They are free objects, and CEL compares them all the same."""
    answer = jobs.would_change("runs", {"spec": {"training": {"arguments": {"a": 1}}}})

    assert "training cannot change while the job runs" in answer.refusal


def test_suspending_and_changing_at_once_is_refused(jobs: CrdServer) -> None:
    """The pods of the old model still run then."""
    answer = jobs.would_change("runs", {"spec": {"suspend": True, "training": {"steps": 7}}})

    assert "training cannot change while the job runs" in answer.refusal
