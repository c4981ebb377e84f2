"""A namespace for one test: jobs, their pods, and the parts of a kubelet that a test plays."""

import itertools
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from trainmaster.wire import names

from .agents import Agent, plain
from .apiserver import ApiServer, Document
from .operator_process import OperatorProcess

MERGE_PATCH = "application/merge-patch+json"
SECONDS = 120.0
TASK = {"task": "trainmaster_trainer.tasks.digits:Digits", "steps": 100, "globalBatchSize": 64}

_addresses = itertools.count(2)


class Lab:
    """One namespace."""

    def __init__(self, server: ApiServer, operator: OperatorProcess, namespace: str) -> None:
        self.server = server
        self.operator = operator
        self.namespace = namespace
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        server.call("POST", f"{self.core}/serviceaccounts", {"metadata": {"name": "default"}})

    @property
    def core(self) -> str:
        """The path of pods and the like."""
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def jobs(self) -> str:
        """The path of TrainingJobs."""
        return f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}"

    def submit(self, name: str = "digits", **spec: Any) -> Document:
        """Create a job."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name},
            "spec": {"strategy": {"type": "AllReduce"}, "training": TASK, **spec},
        }
        return self.server.call("POST", self.jobs, body)

    def job(self, name: str = "digits") -> Document:
        """As it is now."""
        return self.server.call("GET", f"{self.jobs}/{name}")

    def pods(self) -> list[Document]:
        """All pods, by name."""
        return sorted(
            self.server.call("GET", f"{self.core}/pods")["items"], key=lambda pod: str(pod["metadata"]["name"])
        )

    def pod(self, name: str) -> Document:
        """One of them."""
        return self.server.call("GET", f"{self.core}/pods/{name}")

    def patch_pod(self, name: str, status: Document) -> Document:
        """Play kubelet or scheduler."""
        return self.server.call("PATCH", f"{self.core}/pods/{name}/status", {"status": status}, MERGE_PATCH)

    def patch_job(self, patch: Document, name: str = "digits", sub: str = "") -> Document:
        """Play a user."""
        return self.server.call("PATCH", f"{self.jobs}/{name}{sub}", patch, MERGE_PATCH)

    def run_pod(self, name: str) -> Agent:
        """A node takes the pod and starts it, and its agent is up."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-1"}}
        self.server.call("POST", f"{self.core}/pods/{name}/binding", binding)
        address = f"10.244.0.{next(_addresses) % 250}"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        pod = self.patch_pod(name, status)
        return Agent(self.operator.url, self.token(pod), pod)

    def remove_pod(self, name: str) -> None:
        """The kubelet has ended the pod that somebody deleted; or somebody deletes it by force."""
        self.server.call("DELETE", f"{self.core}/pods/{name}", {"gracePeriodSeconds": 0})

    def token(self, pod: Document, audience: str = names.TOKEN_AUDIENCE, account: str = "default") -> str:
        """What the kubelet would project into the pod."""
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        spec = {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": bound}
        answer = self.server.call("POST", f"{self.core}/serviceaccounts/{account}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def await_pods(self, *expected: str) -> list[Document]:
        """Until exactly these pods are there and none of them is on its way out."""
        path = f"{self.core}/pods"
        wanted = set(expected)
        self._await(
            path, lambda items: wanted == {name for name, pod in items.items() if _stays(pod)}, f"pods {wanted}"
        )
        return [self.pod(name) for name in expected]

    def pods_of(self, job: str) -> list[Document]:
        """All pods of one job."""
        return [pod for pod in self.pods() if pod["metadata"].get("labels", {}).get(names.LABEL_JOB) == job]

    def await_pods_of(self, job: str, *expected: str) -> None:
        """Until exactly these pods of this job are there."""
        self._await(
            f"{self.core}/pods",
            lambda items: (
                set(expected)
                == {n for n, p in items.items() if p["metadata"].get("labels", {}).get(names.LABEL_JOB) == job}
            ),
            f"pods {expected} of {job}",
        )

    def await_owned(self, *expected: str) -> list[Document]:
        """Until these pods are there, and belong to a job."""
        self._await(
            f"{self.core}/pods",
            lambda items: all("ownerReferences" in items.get(n, {"metadata": {}})["metadata"] for n in expected),
            f"pods {expected} of a job",
        )
        return [self.pod(name) for name in expected]

    def await_job(self, what: Callable[[Document], bool], name: str = "digits", seconds: float = SECONDS) -> Document:
        """Until `what` holds of the job."""
        items = self._await(self.jobs, lambda items: name in items and what(items[name]), f"job {name}", seconds)
        return items[name]

    def await_phase(self, phase: str, name: str = "digits", seconds: float = SECONDS) -> Document:
        """Until the job is in this phase."""
        return self.await_job(lambda job: job.get("status", {}).get("phase") == phase, name, seconds)

    def delete_job_alone(self, name: str = "digits") -> None:
        """Play `kubectl delete --cascade=orphan`, and the garbage collector that lets the job go."""
        self.server.call("DELETE", f"{self.jobs}/{name}", {"propagationPolicy": "Orphan"})
        self.patch_job({"metadata": {"finalizers": None}}, name)
        self.await_gone(name)

    def await_gone(self, name: str = "digits") -> None:
        """Until the job is no more."""
        self._await(self.jobs, lambda items: name not in items, f"job {name} to go")

    def await_event(self, reason: str, job: str = "digits") -> Document:
        """Until people have been told of `reason`."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        def is_it(event: Document) -> bool:
            return (event["reason"], event["regarding"]["name"]) == (reason, job)

        found = self._await(path, lambda items: any(map(is_it, items.values())), f"event {reason} of {job}")
        return next(filter(is_it, found.values()))

    def start_training(self, *names: str, attempt: int = 1) -> list[Agent]:
        """All pods run, all agents report, get the order to run, and do."""
        agents = [self.run_pod(name) for name in names]
        return self.train(agents, attempt)

    def train(self, agents: list[Agent], attempt: int) -> list[Agent]:
        """Agents that are up get the order to run, and do. All go on reporting until each has it, as real ones do."""
        deadline, waiting = time.monotonic() + SECONDS, list(agents)
        while waiting:
            for agent in list(waiting):
                answer = agent.beat()
                assert answer.status in (200, 204, 421), (
                    answer
                )  # 421: the leader's lease is late, and an agent asks again
                if agent.orders and agent.orders.verb == "Run" and agent.orders.attempt >= attempt:
                    agent.obey()
                    agent.tell()
                    waiting.remove(agent)
            assert time.monotonic() < deadline, f"no order to run {attempt}"
            time.sleep(0.2 if waiting else 0)  # whoever asks more often is refused (429)
        return agents

    def _await(
        self, path: str, holds: Callable[[dict[str, Document]], bool], what: str, seconds: float = SECONDS
    ) -> dict[str, Document]:
        """List and watch until it holds."""
        deadline = time.monotonic() + seconds
        items: dict[str, Document] = {}
        for items in self._states(path, deadline):
            if holds(items):
                return items
        raise AssertionError(f"waited {seconds} s for {what}: {[plain(item) for item in items.values()]}")

    def _states(self, path: str, deadline: float) -> Iterator[dict[str, Document]]:
        """Everything under `path`, after every change of it."""
        listed = self.server.call("GET", path)
        items = {item["metadata"]["name"]: item for item in listed["items"]}
        yield items
        version = listed["metadata"]["resourceVersion"]
        left = max(1, int(deadline - time.monotonic()))
        query = f"?watch=true&resourceVersion={version}&timeoutSeconds={left}"
        request = urllib.request.Request(self.server.url + path + query)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self.server.token}")
        trust = ssl.create_default_context(cafile=str(self.server.certificate))
        with urllib.request.urlopen(request, timeout=left + 10, context=trust) as response:  # noqa: S310
            for line in response:
                event = json.loads(line)
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    items.pop(name, None)
                else:
                    items[name] = event["object"]
                yield items


def _stays(pod: Document) -> bool:
    return "deletionTimestamp" not in pod["metadata"]
