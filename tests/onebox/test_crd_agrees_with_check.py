"""The check and a real API server give the same verdict on random jobs: CEL and Python say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from trainmaster.api.document import load
from trainmaster.api.job import TrainingJob

from tests.api.random_specs import random_jobs
from tests.onebox.crd_server import Cluster, CrdServer, crd_server

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[CrdServer]:
    with crd_server(cluster) as server:
        yield server


SLOW_IS_FINE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@given(job=random_jobs())
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW_IS_FINE)
def test_same_verdict(server: CrdServer, job: dict[str, Any]) -> None:
    agree(server, job)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@given(job=random_jobs())
@settings(max_examples=3000, deadline=None, suppress_health_check=SLOW_IS_FINE)
def test_same_verdict_on_many(server: CrdServer, job: dict[str, Any]) -> None:
    agree(server, job)


def agree(server: CrdServer, job: dict[str, Any]) -> None:
    """Check that what the check lets through is accepted, and what it refuses is refused."""
    loaded = load(yaml.safe_dump(job, allow_unicode=True))
    answer = server.would_create(job)
    note(f"check: {loaded}")
    note(f"API server: {answer.refusal or 'accepted'}")
    assert isinstance(loaded, TrainingJob) == answer.accepted
