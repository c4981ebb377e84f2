"""Make the pods of many replicas of one role for little: what `manifests.pod` makes, without making it each time.

A large job's pods are made while the API server needs the processor, and differ in their names and numbers alone.
"""

from trainmaster.api.job import TrainingJob
from trainmaster.cluster import manifests
from trainmaster.cluster.manifests import Document, PodSettings


class PodMaker:
    """Make pods, each as a copy of the one before where that is one of the same role of the same job."""

    def __init__(self, settings: PodSettings) -> None:
        self._settings = settings
        self._last: tuple[TrainingJob, str, Document] | None = None

    def pod(self, job: TrainingJob, role: str, index: int, incarnation: int) -> Document:
        """Return the pod of one replica. It shares parts with other pods, so it must not be changed.

        Raises:
            TemplateError: see `manifests.pod`.
        """
        # A job that was changed, or whose status was, is another object.
        if self._last is None or self._last[0] is not job or self._last[1] != role:
            self._last = job, role, manifests.pod(job, role, index, incarnation, self._settings)
        return manifests.of_another(self._last[2], job, role, index, incarnation)
