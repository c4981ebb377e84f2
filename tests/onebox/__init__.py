"""A real Kubernetes on one machine: API server, two nodes, our images; for `make cluster-up` and the cluster tests.

`cluster.py` is the way in; `python -m tests.onebox --help` is the same from a shell.
"""

from tests.onebox.cluster import Cluster, Node
from tests.onebox.remains import leftovers
from tests.onebox.shell import OneboxError

__all__ = ["Cluster", "Node", "OneboxError", "leftovers"]
