"""Fixtures of frameworks in pods: the cluster, and how to name a job in a namespace that has their environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.onebox.conftest import cluster, namespace
from tests.onebox.flavours import Flavour
from tests.onebox.framework_jobs import environments
from tests.onebox.operator_jobs import Job

__all__ = ["cluster", "job", "namespace"]


@pytest.fixture(scope="module")
def job(cluster: Flavour) -> Iterator[Callable[[str], Job]]:
    """A job of this name in a namespace that has the environments and the scripts."""
    with environments(cluster) as named:
        yield named
