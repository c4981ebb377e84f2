"""Fixtures for the tests of the chart: what Helm renders, and a private API server with the chart in it."""

import pathlib
from collections.abc import Iterator

import pytest

from .controlplane import ControlPlane, binary, control_plane

NEEDED = ("helm", "etcd", "kube-apiserver")


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A private API server for this session."""
    missing = [name for name in NEEDED if binary(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not in the cache: make cluster-tools builds them")
    folder: pathlib.Path = tmp_path_factory.mktemp("control-plane")
    with control_plane(folder) as running:
        yield running
