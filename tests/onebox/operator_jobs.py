"""A job on the real cluster, for the tests of the operator: submit it, wait for it, break it."""

import functools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from kubernetes import client, config
from trainmaster.wire import names
from urllib3.exceptions import HTTPError

from tests.onebox.flavours import Flavour
from tests.onebox.paced import CONFIG_MAP, DIGITS, MOUNTED, TASK, Document
from tools.onebox.shell import OneboxError

# In the pod: end the process that has mapped a rank's progress page and is not the agent.
KILL_RANK = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        maps = open(f"/proc/{pid}/maps").read()
    except OSError:
        continue
    if pid not in ("1", str(os.getpid())) and ".progress" in maps:
        os.kill(int(pid), signal.SIGKILL)
        print("killed", pid)
"""


@functools.cache
def jobs_api(kubeconfig: Path) -> client.CustomObjectsApi:
    """Return what reads jobs in this process: kubectl takes a tenth of a second of the processor each time."""
    return client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))  # type: ignore[no-untyped-call]


def without_torch(cluster: Flavour) -> Document:
    """Return the image of a role whose program needs Python alone: the operator's. Its pods do not import torch."""
    words = ("get", "deployment", "trainmaster", "--namespace=trainmaster-system", "--output=json")
    container = json.loads(cluster.kubectl(*words))["spec"]["template"]["spec"]["containers"][0]
    return {"image": container["image"], "imagePullPolicy": "IfNotPresent"}


@dataclass(frozen=True)
class Job:
    """One TrainingJob in a namespace of the test's own."""

    cluster: Flavour
    namespace: str
    name: str = "digits"
    spec: Document = field(default_factory=dict)

    def submit(self, **spec: Any) -> "Job":
        """Create it, and what its task needs."""
        body: Document = {"strategy": {"type": "AllReduce"}, "training": DIGITS, "workers": {"replicas": 2}, **spec}
        if body["training"].get("task") == TASK:
            self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(CONFIG_MAP))
            body |= {role: {**MOUNTED, **body[role]} for role in ("workers", "parameterServers") if role in body}
        kind = {"apiVersion": "trainmaster.dev/v1", "kind": "TrainingJob", "metadata": {"name": self.name}}
        self.create({**kind, "spec": body})
        return self

    def create(self, *documents: Document) -> None:
        """Create objects beside it."""
        self.kubectl("create", "--filename=-", stdin=yaml.safe_dump_all(documents))

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """In its namespace."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *words, stdin=stdin)

    def wait(self, phase: str, seconds: int = 400) -> Document:
        """Until it is in this phase."""
        return self.wait_for(f"jsonpath={{.status.phase}}={phase}", seconds)

    def wait_for(self, condition: str, seconds: int = 400) -> Document:
        """Until `kubectl wait` says so."""
        self.kubectl("wait", f"tj/{self.name}", f"--for={condition}", f"--timeout={seconds}s")
        return self.status()

    def wait_for_step(self, step: int, seconds: float = 400) -> Document:
        """Until so many steps are in the status."""
        deadline = time.monotonic() + seconds
        while (status := self.status()).get("progress", {}).get("step", 0) < step:
            assert time.monotonic() < deadline, json.dumps(status, indent=1)
            assert status.get("phase") not in ("Failed", "Succeeded"), json.dumps(status, indent=1)
            time.sleep(0.5)  # `kubectl wait` knows equality only, and the status tells of steps every ten seconds
        return status

    def goes_on(self, seconds: int = 400) -> Document:
        """Wait until it runs, and has come further than it is now."""
        step = self.wait("Running", seconds).get("progress", {}).get("step", 0)
        return self.wait_for_step(step + 1, seconds)

    def saves(self, seconds: int = 400) -> Document:
        """Wait for a checkpoint of a later step than it is at now, and return what the status says of it."""
        first = self.status()["progress"]["step"]
        end = time.monotonic() + seconds
        while (saved := self.status().get("checkpoint", {})).get("step", 0) <= first:
            assert time.monotonic() < end, json.dumps(self.status(), indent=1)
            time.sleep(0.5)
        return dict(saved)

    def status(self) -> Document:
        """As it is now."""
        where = (names.GROUP, names.VERSION, self.namespace, names.PLURAL, self.name)
        try:
            found = jobs_api(self.cluster.kubeconfig).get_namespaced_custom_object(*where, _request_timeout=60)
        except (client.ApiException, HTTPError) as error:
            raise OneboxError(f"The job {self.name} cannot be read now: {error}") from error
        return dict(cast("Document", found).get("status", {}))

    def condition(self, kind: str) -> Document:
        """One of its conditions."""
        return next((c for c in self.status().get("conditions", []) if c["type"] == kind), {})

    def events(self) -> list[str]:
        """The reasons of all that people were told."""
        words = ("get", "events", f"--field-selector=involvedObject.kind=TrainingJob,involvedObject.name={self.name}")
        return [item["reason"] for item in json.loads(self.kubectl(*words, "--output=json"))["items"]]

    def wait_for_event(self, reason: str, seconds: float = 200) -> None:
        """Wait until people were told of this: events are written after the status, and again where that fails."""
        end = time.monotonic() + seconds
        while reason not in self.events():
            assert time.monotonic() < end, f"nobody was told: {reason}"
            time.sleep(0.5)

    def pods(self) -> dict[str, Document]:
        """All of its pods."""
        listed = json.loads(self.kubectl("get", "pods", "--output=json"))
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    def uids(self) -> dict[str, str]:
        """What tells a pod from another one of the same name, of those that nobody has deleted."""
        pods = self.pods().items()
        return {name: pod["metadata"]["uid"] for name, pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def pod_of(self, index: int) -> str:
        """Return the name of the pod of one worker that is up now."""
        (name,) = [
            name
            for name, pod in self.pods().items()
            if pod["metadata"]["labels"].get("trainmaster.dev/index") == str(index)
            and pod["metadata"]["labels"].get("trainmaster.dev/job") == self.name
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] in ("Pending", "Running")  # kubelet may tell later than the agent that it runs
        ]
        return name

    def kill_rank(self, pod: str) -> None:
        """SIGKILL for the rank's process, and for nothing else in the pod."""
        assert "killed" in self.kubectl("exec", pod, "--container=trainer", "--", "python3", "-c", KILL_RANK)
