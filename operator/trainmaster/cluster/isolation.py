"""Make a NetworkPolicy for each job, which lets its pods be reached by one another and by nobody else.

Servers that frameworks open in pods obey whoever reaches them. `jobNetworkPolicy` of the chart switches it on.
"""

from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.cluster import manifests
from trainmaster.wire import names

Document = dict[str, Any]


def policy(job: TrainingJob) -> Document:
    """Return the NetworkPolicy. Policies add up: another one may let in more, such as who scrapes the pods."""
    own = {"matchLabels": {names.LABEL_JOB: job.name}}
    spec = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": manifests.metadata(job),
        "spec": spec,
    }
