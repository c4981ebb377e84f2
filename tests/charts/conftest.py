"""Fixtures for the tests of the chart: a private API server, and one with the chart in it."""

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.apiserver import ApiServer

from .client import Client
from .tools import CHART, NAMESPACE, helm, settings


@dataclass(frozen=True)
class Plane:
    """A private control plane, met as its administrator."""

    admin: Client
    kubeconfig: pathlib.Path

    def install(
        self,
        *values: str,
        chart: pathlib.Path = CHART,
        namespace: str = NAMESPACE,
        create_namespace: bool = True,
    ) -> str:
        """Install or upgrade the chart as a person would, and return what Helm says."""
        command = ["upgrade", "--install", "trainmaster", str(chart), "--namespace", namespace]
        command += ["--create-namespace"] if create_namespace else []
        done = helm(*command, *settings(values), kubeconfig=self.kubeconfig)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def uninstall(self, namespace: str = NAMESPACE) -> str:
        """Take the release away, and return what Helm says."""
        done = helm("uninstall", "trainmaster", "--namespace", namespace, kubeconfig=self.kubeconfig)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A private API server for this module."""
    folder = tmp_path_factory.mktemp("control-plane")
    server = ApiServer(folder)
    try:
        server.start()
        admin = Client(server.url, server.certificate, server.token)
        yield Plane(admin, admin.kubeconfig(folder / "kubeconfig"))
    finally:
        server.stop()
