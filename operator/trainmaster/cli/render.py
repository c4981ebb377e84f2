"""Run `trainmaster render JOB.yaml`: print the service and the pods that a cluster would get, as YAML.

No cluster is asked. What only a cluster knows (uid, the operator's address) is a placeholder.
"""

from pathlib import Path

import yaml

from trainmaster.api.job import TrainingJob
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD, load_or_report
from trainmaster.cli.terminal import complain, tell
from trainmaster.cluster import manifests
from trainmaster.cluster.manifests import PodSettings
from trainmaster.wire import names

UID = "00000000-0000-0000-0000-000000000000"
SETTINGS = PodSettings(operator_url="http://OPERATOR:8080", trainer_image="trainmaster/trainer:dev")


def render(path: str) -> int:
    """Print the objects, and return the exit code: 2 if the file is no job."""
    job = load_or_report(Path(path))
    if job is None:
        return EXIT_BAD
    try:
        made = objects(job)
    except manifests.TemplateError as error:
        complain(f"{path}: {error}")
        return EXIT_BAD
    tell(yaml.safe_dump_all(made, sort_keys=False, default_flow_style=False).rstrip("\n").split("\n"))
    return EXIT_GOOD


def objects(job: TrainingJob) -> list[manifests.Document]:
    """Return the service, then the pods in rank order; spares come after the workers."""
    metadata = job.metadata.model_copy(update={"uid": job.uid or UID})
    named = job.model_copy(update={"metadata": metadata})
    pods = [
        manifests.pod(named, role, index, 0, SETTINGS)
        for role, replica in job.spec.roles.items()
        for index in range(replica.replicas + (job.spec.spares if role == names.WORKER else 0))
    ]
    return [manifests.service(named), *pods]
