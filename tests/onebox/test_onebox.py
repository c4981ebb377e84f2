"""The cluster itself: everything that later tests take for granted, asked of the real thing once."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.onebox.conftest import new_namespace
from tests.onebox.flavours import Flavour
from tests.onebox.pods import create, field, output, pod, wait
from tools.onebox import Cluster, cgroups, leftovers, registry
from tools.onebox.paths import AGENT_IMAGE, NODE_NAMES, OPERATOR_IMAGE
from tools.onebox.processes import wait as wait_until

pytestmark = pytest.mark.cluster

NODES = pytest.mark.parametrize("node", NODE_NAMES)

ASK_A_SERVER = """
import sys, time, urllib.request
end = time.monotonic() + 200
while True:
    try:
        print(urllib.request.urlopen(f"http://{sys.argv[1]}/", timeout=2).read().decode(), end="")
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.2)
"""

ASK_THE_API_SERVER = """
import os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
token = open(f"{folder}/token").read()
request = urllib.request.Request("https://%s/openid/v1/jwks" % os.environ["KUBERNETES_SERVICE_HOST"])
request.add_header("Authorization", f"Bearer {token}")
print(urllib.request.urlopen(request, context=context, timeout=60).read().decode())
"""

# Its last child waits for the end of its first one; ends of the others in between take a while.
A_WATCHER = """
import os, pathlib, select, subprocess, sys
folder = pathlib.Path(sys.argv[1])
children = [subprocess.Popen(["sleep", "600"]) for _ in range(100)]
if os.fork() == 0:
    first = os.pidfd_open(children[0].pid)
    (folder / "ready").touch()
    select.select([first], [], [])
    (folder / "told").touch()
    os._exit(0)
os.wait()
"""

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "shared"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


def serving(name: str) -> list[dict[str, Any]]:
    """Describe a pod on the node of that name that serves its name over HTTP, and a service for it."""
    script = f"echo hello; cd /tmp; echo {name} > index.html; exec python3 -m http.server 8080"
    manifest = pod(name, "sh", "-c", script, node=name, image=OPERATOR_IMAGE)
    manifest["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "shared"}})
    manifest["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}
    return [manifest, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}]


@dataclass(frozen=True)
class ServingPods:
    """A confined pod on each node, named like it, with the same claim at /data."""

    onebox: Cluster
    namespace: str

    def run(self, node: str, *command: str) -> str:
        """Run a command in one of them, and return what it printed."""
        return self.onebox.kubectl("exec", node, f"--namespace={self.namespace}", "--", *command)


@pytest.fixture(scope="module")
def serving_pods(onebox: Cluster) -> Iterator[ServingPods]:
    """Two pods that run, for all questions that a pod can answer by a command."""
    with new_namespace(onebox) as namespace:
        create(onebox, namespace, CLAIM, *serving(NODE_NAMES[0]), *serving(NODE_NAMES[1]))
        for name in NODE_NAMES:
            wait(onebox, namespace, name, "Running")
        yield ServingPods(onebox, namespace)


def test_both_nodes_are_ready(onebox: Cluster) -> None:
    """The cluster has two nodes, so that one can be lost."""
    assert [onebox.node(name).is_ready() for name in NODE_NAMES] == [True, True]


@pytest.mark.usefixtures("onebox")  # which builds it
def test_the_image_of_the_agent_is_below_15_megabytes() -> None:
    """Uncompressed, with the shell that copies it. Every node that runs an image of a user's own pulls it."""
    digest = registry.manifest_digest(AGENT_IMAGE)
    assert digest is not None
    assert sum(layer["size"] for layer in registry.manifest(digest)["layers"]) < 15_000_000


@NODES
def test_a_confined_pod_runs_and_its_log_can_be_read(serving_pods: ServingPods, node: str) -> None:
    """Scheduler, kubelet, containerd and the way from the API server to the kubelet work."""
    log = serving_pods.onebox.kubectl("logs", node, f"--namespace={serving_pods.namespace}")
    assert log.splitlines()[0] == "hello"


@NODES
def test_a_command_runs_in_a_pod(serving_pods: ServingPods, node: str) -> None:
    """`kubectl exec` works, and the pod is the user that it should be."""
    assert serving_pods.run(node, "id", "-u") == "65532\n"


@pytest.mark.parametrize(("here", "there"), [NODE_NAMES, NODE_NAMES[::-1]])
def test_pods_reach_one_another_and_services(serving_pods: ServingPods, here: str, there: str) -> None:
    """By the address of a pod on the other node, and by the address of its service."""
    address = field(serving_pods.onebox, serving_pods.namespace, there, ".status.podIP")
    get = ("get", "service", there, f"--namespace={serving_pods.namespace}", "--output=jsonpath={.spec.clusterIP}")
    for place in (f"{address}:8080", serving_pods.onebox.kubectl(*get)):
        # The service's rules may be a moment away: the question is repeated until there is an answer.
        assert serving_pods.run(here, "python3", "-c", ASK_A_SERVER, place) == f"{there}\n"


@NODES
def test_a_pod_reaches_the_api_server(serving_pods: ServingPods, node: str) -> None:
    """By its service address, with its certificate verified, and may read the keys that sign tokens."""
    answer = json.loads(serving_pods.run(node, "python3", "-c", ASK_THE_API_SERVER))
    assert answer == json.loads(serving_pods.onebox.kubectl("get", "--raw", "/openid/v1/jwks"))


def test_a_claim_is_bound_to_a_volume_that_both_nodes_see(serving_pods: ServingPods) -> None:
    """What one node's pod writes, the other node's reads: where checkpoints go."""
    writer, reader = NODE_NAMES
    serving_pods.run(writer, "sh", "-c", "echo kept > /data/file")
    assert serving_pods.run(reader, "cat", "/data/file") == "kept\n"


def test_a_projected_token_names_its_pod(cluster: Flavour, namespace: str) -> None:
    """What agents prove themselves by: signed by the cluster, for our audience, with the pod's uid in it."""
    showing = pod("showing", "cat", "/var/run/token/token")
    projection = {"serviceAccountToken": {"audience": "trainmaster", "path": "token", "expirationSeconds": 3600}}
    showing["spec"]["volumes"].append({"name": "token", "projected": {"sources": [projection]}})
    mounts = showing["spec"]["containers"][0]["volumeMounts"]
    mounts.append({"name": "token", "mountPath": "/var/run/token"})

    token = output(cluster, namespace, showing)

    keys = jwt.PyJWKSet.from_dict(json.loads(cluster.kubectl("get", "--raw", "/openid/v1/jwks")))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(token, key, algorithms=["RS256"], audience="trainmaster")
    assert claims["kubernetes.io"]["pod"]["uid"] == field(cluster, namespace, "showing", ".metadata.uid")


def test_every_request_is_in_the_audit_log(cluster: Flavour, namespace: str) -> None:
    """Benchmarks count writes in it, and tests of rights read which were used."""
    lines = cluster.audit_log.read_text().splitlines()
    created = [json.loads(line) for line in lines if namespace in line and '"verb":"create"' in line]
    assert "namespaces" in {event["objectRef"]["resource"] for event in created}


def test_the_api_server_comes_back(breakable: Flavour, namespace: str) -> None:
    """It can be stopped and started under a pod that runs on."""
    create(breakable, namespace, pod("sleeper", "sleep", "600"))
    wait(breakable, namespace, "sleeper", "Running")
    breakable.stop("kube-apiserver")
    breakable.start("kube-apiserver")
    assert field(breakable, namespace, "sleeper", ".status.phase") == "Running"


def test_a_lost_node_is_noticed_and_comes_back(onebox: Cluster, breakable: Flavour) -> None:
    """Its daemons and pods end at once; the cluster says so within seconds, and has it again after a start."""
    node = onebox.node("node-2")
    breakable.node("node-2").kill()
    wait_until(lambda: not node.is_ready(), "the loss is noticed", 200, 0.5)
    breakable.node("node-2").start()
    wait_until(node.is_ready, "the node is back", 200, 0.5)


@pytest.mark.usefixtures("onebox")  # which takes control groups away again
def test_nothing_on_a_node_sees_another_part_of_it_end(tmp_path: Path) -> None:
    """As in a power cut: else a kubelet could still tell of its pods, or an agent of its ranks."""
    cgroups.create("power")
    told, command = tmp_path / "told", (*cgroups.entering("power"), sys.executable, "-c", A_WATCHER, str(tmp_path))
    with subprocess.Popen(command) as watcher:
        wait_until((tmp_path / "ready").exists, "it watches", 200)
        cgroups.kill("power")
        assert watcher.wait() == -signal.SIGKILL
    cgroups.remove("power")
    assert not told.exists()


def test_what_a_cluster_leaves_is_seen(onebox: Cluster) -> None:
    """The check that a taken down cluster must pass finds all kinds of things while one is up."""
    assert onebox.is_up()
    kinds = {line.split()[0] for line in leftovers()}
    assert kinds >= {"process", "control", "mount", "interface", "packet", "file"}
