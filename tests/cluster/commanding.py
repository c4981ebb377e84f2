"""What tests of the commands use: a namespace of jobs, folders that runs have left, and the commands themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.status import TrainingJobStatus
from trainmaster.local.workdir import Workdir
from trainmaster.wire import names

from .apiserver import ApiServer, Document
from .lab import MERGE_PATCH, TASK

Run = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Jobs:
    """A namespace without an operator: tests write what an operator would."""

    server: ApiServer
    namespace: str

    @property
    def path(self) -> str:
        """The path of its jobs."""
        return f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}"

    def create(self, name: str = "digits", **spec: object) -> Document:
        """Create a job."""
        body = {"strategy": {"type": "AllReduce"}, "training": TASK, "workers": {"replicas": 2}, **spec}
        kind = {"apiVersion": names.API_VERSION, "kind": names.KIND}
        return self.server.call("POST", self.path, {**kind, "metadata": {"name": name}, "spec": body})

    def job(self, name: str = "digits") -> Document:
        """The job as it is."""
        return self.server.call("GET", f"{self.path}/{name}")

    def pod(self, name: str, labels: dict[str, str]) -> Document:
        """Create a pod that no node takes."""
        spec = {"containers": [{"name": names.MAIN_CONTAINER, "image": "none"}], "serviceAccountName": "default"}
        core = f"/api/v1/namespaces/{self.namespace}"
        self.server.call("POST", f"{core}/serviceaccounts", {"metadata": {"name": "default"}})
        return self.server.call("POST", f"{core}/pods", {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def tell(self, name: str = "digits", **status: object) -> None:
        """Write its status."""
        self.server.call("PATCH", f"{self.path}/{name}/status", {"status": status}, MERGE_PATCH)


def a_run(folder: Path, **status: object) -> Path:
    """The folder that a run has left."""
    with Workdir(folder) as place:
        place.write_status(TrainingJobStatus.read(status))
        for index, incarnation in ((0, 0), (1, 0), (1, 1)):
            (place.logs / f"digits-worker-{index}-{incarnation}.log").write_text(f"of {index}, {incarnation}\n")
    return folder
