"""The cluster that the tests of this folder run against: three kinds of it, met through one small interface.

- `TRAINMASTER_TEST_CLUSTER=existing` and KUBECONFIG: that cluster, with whatever is installed in it.
- a Docker engine that answers and has the kind node image: a `kind` cluster, made and deleted here.
- else the one-machine cluster of `tools/onebox`: the one of `make cluster-up` if it runs, or one for this test run.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.onebox.flavours import Existing, Flavour, Kind
from tools.onebox import Cluster, leftovers

ACCOUNT_SECONDS = 400


@pytest.fixture(scope="session")
def cluster() -> Iterator[Flavour]:
    """A real Kubernetes with this checkout's operator in it."""
    if os.environ.get("TRAINMASTER_TEST_CLUSTER") == "existing":
        yield Existing(Path(os.environ["KUBECONFIG"]))
    elif Kind.is_possible():
        yield from _kind()
    else:
        yield from _onebox()


@pytest.fixture(scope="session")
def onebox(cluster: Flavour) -> Cluster:
    """The cluster, for tests that look at or break the one-machine kind."""
    if not isinstance(cluster, Cluster):
        pytest.skip("this is not the one-machine cluster")
    return cluster


@pytest.fixture
def breakable(cluster: Flavour) -> Iterator[Flavour]:
    """The cluster, for a test that stops parts of it; afterwards they run again."""
    yield cluster
    cluster.heal()


@pytest.fixture
def namespace(cluster: Flavour) -> Iterator[str]:
    """A namespace of the test's own."""
    with new_namespace(cluster) as name:
        yield name


@contextmanager
def new_namespace(cluster: Flavour) -> Iterator[str]:
    """A namespace under the strictest Pod Security standard."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(manifest))
    # kube-controller-manager makes it: after an outage of the API server it needs up to three minutes to come back.
    patience = f"--timeout={ACCOUNT_SECONDS}s"
    cluster.kubectl("wait", "serviceaccount/default", f"--namespace={name}", "--for=create", patience)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def _onebox() -> Iterator[Cluster]:
    """Bring it up to date, or up; take it down again only if nobody had it up before."""
    cluster = Cluster()
    was_up = cluster.is_up()
    cluster.up()
    yield cluster
    if not was_up:
        cluster.down()
        assert leftovers() == []


def _kind() -> Iterator[Kind]:
    if shutil.which("kind") is None:
        pytest.fail("a Docker engine and a kind node image are here, but not the program `kind`")
    cluster = Kind()
    cluster.up()
    yield cluster
    cluster.down()
