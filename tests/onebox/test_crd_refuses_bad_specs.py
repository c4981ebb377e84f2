"""A real API server refuses every bad spec with the field and the cure in its message."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.api.bad_specs import BAD_SPECS
from tests.api.changes import BadSpec
from tests.onebox.crd_server import Cluster, CrdServer, crd_server

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[CrdServer]:
    with crd_server(cluster) as server:
        yield server


@pytest.mark.parametrize("spec", BAD_SPECS, ids=lambda spec: spec.name)
def test_refused_with_field_and_cure(server: CrdServer, spec: BadSpec) -> None:
    """The message of a rule is ours; that of a type or an unknown name is Kubernetes' own."""
    answer = server.would_create(spec.job())

    assert not answer.accepted
    assert spec.server in answer.refusal
    assert _named(spec.field) in answer.refusal


def _named(field: str) -> str:
    """The last name on the way to a field."""
    return re.sub(r"\[\d+\]", "", field).rsplit(".", maxsplit=1)[-1] if "labels" not in field else "labels"
