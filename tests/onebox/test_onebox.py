"""The cluster itself: everything that later tests take for granted, asked of the real thing once."""

import json
from typing import Any

import jwt
import pytest

from tests.onebox.flavours import Flavour
from tests.onebox.pods import create, field, output, pod, wait
from tools.onebox import Cluster, leftovers, registry
from tools.onebox.paths import AGENT_IMAGE, NODE_NAMES, OPERATOR_IMAGE
from tools.onebox.processes import wait as wait_until

pytestmark = pytest.mark.cluster

NODES = pytest.mark.parametrize("node", NODE_NAMES)

REQUEST = r"GET / HTTP/1.0\r\n\r\n"  # busybox's own wget falls over where it cannot look names up

ASK_THE_API_SERVER = """
import os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
token = open(f"{folder}/token").read()
request = urllib.request.Request("https://%s/openid/v1/jwks" % os.environ["KUBERNETES_SERVICE_HOST"])
request.add_header("Authorization", f"Bearer {token}")
print(urllib.request.urlopen(request, context=context, timeout=60).read().decode())
"""


def serving(name: str, node: str) -> dict[str, Any]:
    """Describe a pod that serves its own name over HTTP."""
    return pod(name, "sh", "-c", f"echo {name} > /tmp/index.html; exec httpd -f -p 8080 -h /tmp", node=node)


def service(name: str) -> dict[str, Any]:
    """Describe a service for the pods with that name as their label."""
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


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
def test_a_confined_pod_runs_and_its_log_can_be_read(onebox: Cluster, namespace: str, node: str) -> None:
    """Scheduler, kubelet, containerd and the way from the API server to the kubelet work."""
    assert output(onebox, namespace, pod("hello", "echo", "hello", node=node)) == "hello\n"


@NODES
def test_a_command_runs_in_a_pod(onebox: Cluster, namespace: str, node: str) -> None:
    """`kubectl exec` works, and the pod is the user that it should be."""
    create(onebox, namespace, pod("sleeper", "sleep", "600", node=node))
    wait(onebox, namespace, "sleeper", "Running")
    words = ("exec", "sleeper", f"--namespace={namespace}", "--", "id", "-u")
    assert onebox.kubectl(*words) == "65532\n"


@pytest.mark.parametrize(("here", "there"), [NODE_NAMES, NODE_NAMES[::-1]])
def test_pods_reach_one_another_and_services(onebox: Cluster, namespace: str, here: str, there: str) -> None:
    """By the address of a pod on the other node, and by the address of its service."""
    create(onebox, namespace, serving("server", there), service("server"))
    wait(onebox, namespace, "server", "Running")
    address = field(onebox, namespace, "server", ".status.podIP")
    get = ("get", "service", "server", f"--namespace={namespace}", "--output=jsonpath={.spec.clusterIP}")
    for name, place in (("by-address", f"{address} 8080"), ("by-service", f"{onebox.kubectl(*get)} 80")):
        # The service's rules may be a moment away: the question is repeated until there is an answer.
        script = f"until printf '{REQUEST}' | nc -w 2 {place} | grep server; do sleep 0.2; done"
        assert output(onebox, namespace, pod(name, "sh", "-c", script, node=here)) == "server\n"


@NODES
def test_a_pod_reaches_the_api_server(onebox: Cluster, namespace: str, node: str) -> None:
    """By its service address, with its certificate verified, and may read the keys that sign tokens."""
    asking = pod("asking", "python3", "-c", ASK_THE_API_SERVER, node=node, image=OPERATOR_IMAGE)
    answer = json.loads(output(onebox, namespace, asking))
    assert answer == json.loads(onebox.kubectl("get", "--raw", "/openid/v1/jwks"))


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


def test_a_claim_is_bound_to_a_volume_that_both_nodes_see(onebox: Cluster, namespace: str) -> None:
    """What one node's pod writes, the other node's reads: where checkpoints go."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": spec}
    create(onebox, namespace, claim)
    scripts = {"writer": "echo kept > /data/file", "reader": "cat /data/file"}
    for (name, script), node in zip(scripts.items(), NODE_NAMES, strict=True):
        manifest = pod(name, "sh", "-c", script, node=node)
        manifest["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "shared"}})
        manifest["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        printed = output(onebox, namespace, manifest)
    assert printed == "kept\n"


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
    wait_until(lambda: not node.is_ready(), "the loss is noticed", 200)
    breakable.node("node-2").start()
    wait_until(node.is_ready, "the node is back", 200)


def test_what_a_cluster_leaves_is_seen(onebox: Cluster) -> None:
    """The check that a taken down cluster must pass finds all kinds of things while one is up."""
    assert onebox.is_up()
    kinds = {line.split()[0] for line in leftovers()}
    assert kinds >= {"process", "control", "mount", "interface", "packet", "file"}
