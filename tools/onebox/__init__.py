"""A real Kubernetes on one machine: API server, two nodes, our images; for `make cluster-up` and the cluster tests.

`cluster.py` is the way in; `python -m tools.onebox --help` is the same from a shell.
"""

from tools.onebox.cluster import Cluster, Node
from tools.onebox.remains import leftovers
from tools.onebox.shell import OneboxError

__all__ = ["Cluster", "Node", "OneboxError", "leftovers"]
