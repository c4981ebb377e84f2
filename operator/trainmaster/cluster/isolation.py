"""Make a NetworkPolicy for each job, which lets its pods be reached by one another and by nobody else.

Servers that frameworks open in pods obey whoever reaches them. `jobNetworkPolicy` of the chart switches it on.
"""

from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.cluster import manifests
from trainmaster.cluster.pods import owner_uid
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


class Isolated:
    """Isolated remembers which jobs have their policy.

    Policies are not watched: that would take a right on those of all others. One that somebody deletes is made again by
    the next operator that makes a pod of the job.
    """

    def __init__(self) -> None:
        self._jobs: set[str] = set()

    def __contains__(self, job_uid: str) -> bool:
        return job_uid in self._jobs

    def learn(self, document: Document) -> None:
        """Note a policy that is there."""
        self._jobs.add(owner_uid(document))

    def forget(self, job_uid: str) -> None:
        """Forget a job that is deleted."""
        self._jobs.discard(job_uid)
