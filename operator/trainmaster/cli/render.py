"""`trainmaster render JOB.yaml`: the service and the pods that a cluster would get, as YAML.

Nothing is asked of a cluster. What only a cluster knows (uid, the operator's address) stands as a placeholder.
"""

import sys
from pathlib import Path

import yaml

from trainmaster.api import document
from trainmaster.api.job import TrainingJob
from trainmaster.cluster import manifests
from trainmaster.cluster.manifests import PodSettings

UID = "00000000-0000-0000-0000-000000000000"
SETTINGS = PodSettings(operator_url="http://OPERATOR:8080", trainer_image="trainmaster/trainer:dev")


def render(path: str) -> int:
    """Print them; 2 where the file is no job."""
    try:
        job = document.load_file(Path(path))
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return 2
    if not isinstance(job, TrainingJob):
        print("\n".join(f"{path}:{problem}" for problem in job), file=sys.stderr)
        return 2
    print(yaml.safe_dump_all(objects(job), sort_keys=False, default_flow_style=False), end="")
    return 0


def objects(job: TrainingJob) -> list[manifests.Document]:
    """The service, then the pods in rank order."""
    metadata = job.metadata.model_copy(update={"uid": job.uid or UID})
    named = job.model_copy(update={"metadata": metadata})
    pods = [
        manifests.pod(named, role, index, 0, SETTINGS)
        for role, replica in job.spec.roles.items()
        for index in range(replica.replicas)
    ]
    return [manifests.service(named), *pods]
