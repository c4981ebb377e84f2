"""Where the one-machine cluster keeps its things, and the few numbers that its parts must agree on.

Every module of this package reads its paths, addresses and names here, so that none of them is written twice.
What belongs to a checkout lies in `.cluster/`; what is worth keeping between checkouts, or must share a file
system with the images, lies in the cache folder.
"""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent / "go"

STATE = REPOSITORY / ".cluster"
LOGS = STATE / "logs"
PROCESSES = STATE / "processes"
CERTIFICATES = STATE / "certificates"
CONFIGURATION = STATE / "configuration"
KUBECONFIG = STATE / "kubeconfig"
AUDIT_LOG = STATE / "audit.log"

CACHE = Path(os.environ.get("TRAINMASTER_CACHE", "~/.cache/trainmaster")).expanduser()
BUILDAH = CACHE / "buildah"
LAYOUT = CACHE / "oci"  # the built images as an OCI layout: what the registry serves
STORE = CACHE / "store"  # a containerd root with every image unpacked, and beside it a clone for each node
NODES = CACHE / "nodes"  # the rest of what a running node keeps: kubelet's folder, addresses, volumes
OWNER = CACHE / "cluster.owner"  # names the checkout whose cluster is up: there is one per machine

# Socket paths may have 107 characters at most, and a checkout can lie deep: sockets get a short folder.
RUN = Path("/run/trainmaster-onebox")

# A name of its own for everything that the kernel keeps for us: what carries it is ours to remove.
NAME = "trainmaster"
BRIDGE = "tmbr0"

NETWORK = "10.88.0.0/16"
GATEWAY = "10.88.0.1"  # the bridge itself: the API server listens here, where host and pods reach it
LOOPBACK = "127.88.0.1"  # for the host alone; not 127.0.0.1, where somebody else's etcd may listen already
SERVICES = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
API_PORT = 6443
ETCD = f"http://{LOOPBACK}:2379"
ETCD_PEERS = f"http://{LOOPBACK}:2380"
SERVER = f"https://{GATEWAY}:{API_PORT}"

NODE_NAMES = ("node-1", "node-2")
# A node whose containerd is a newer one than Debian's. Only tests that need it start it; nothing else may run there.
NEWER_NODE = "node-3"
ALL_NODES = (*NODE_NAMES, NEWER_NODE)

PAUSE_IMAGE = "docker.io/trainmaster/pause:dev"
OPERATOR_IMAGE = "docker.io/trainmaster/operator:dev"
TRAINER_IMAGE = "docker.io/trainmaster/trainer:dev"
AGENT_IMAGE = "docker.io/trainmaster/agent:dev"
IMAGES = (PAUSE_IMAGE, OPERATOR_IMAGE, TRAINER_IMAGE, AGENT_IMAGE)


def node_number(node: str) -> int:
    """Turn `node-2` into 2: addresses and ports follow from it."""
    return ALL_NODES.index(node) + 1


def node_address(node: str) -> str:
    """Give a node its own address on the bridge, although both share the host's network."""
    return f"10.88.0.{10 + node_number(node)}"


def containerd_socket(node: str) -> Path:
    """Name the socket on which a node's containerd answers."""
    return RUN / node / "containerd.sock"
