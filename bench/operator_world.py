"""The world of `bench operator`: a private API server, the operator, the agents, the peer, and a thousand jobs.

Everything is real but the kubelet and the agents (`operator_agents`). All of it ends with the `with`.
"""

import asyncio
import itertools
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from trainmaster.wire import names

from bench.operator_api import MERGE_PATCH, Api, Document, Places
from bench.operator_processes import Process
from tests.cluster.apiserver import ApiServer
from tests.ports import free_port
from tools.onebox import binaries

CRD = Path(__file__).parents[1] / "crds" / "trainmaster.dev_trainingjobs.yaml"
# A file for a profile of the operator (cProfile); empty: none is made.
PROFILE = os.environ.get("BENCH_PROFILE", "")
WAIT_SECONDS = 120.0
FOR_EVER = 10_000_000  # steps
READS = frozenset({"get", "list", "watch"})


class World:
    """Made by `world`. With `held`, no pod starts before `let_pods_start`; with `lease`, the operator leads by one."""

    def __init__(self, folder: Path, server: ApiServer, *, held: bool = False, lease: str = "") -> None:
        self.folder = folder
        self._lease = [f"--lease={lease}"] if lease else []
        self.server = server
        self._port, self._probe_port, self._readiness_port = free_port(), free_port(), free_port()
        self.kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self.places = Places(
            server.url,
            server.token,
            str(server.certificate),
            f"http://127.0.0.1:{self._port}",
            0 if held or lease else free_port(),  # heartbeats go to the peer too, where there is one
            str(folder / "agents.json"),
            str(folder / "go" if held else folder),
        )
        self._profiles = itertools.count(1)
        self.agents = self._helper("operator_agents")
        self.peer: Process | None = None
        self.operator = self.start_operator()
        self.operator.await_ready(self._readiness_port)

    def start_operator(self) -> Process:
        """As `trainmaster operator`; does not wait."""
        command = ["-m", "trainmaster", "operator", f"--listen=127.0.0.1:{self._port}"]
        command += [f"--probes=127.0.0.1:{self._probe_port}", f"--readiness=127.0.0.1:{self._readiness_port}"]
        command += self._lease
        if PROFILE:
            command = ["-m", "cProfile", "-o", f"{PROFILE}.{next(self._profiles)}", *command]
        environment = {"KUBECONFIG": str(self.kubeconfig), "TRAINMASTER_TRAINER_IMAGE": "trainer:bench"}
        self.operator = Process(command, self.folder / "operator.log", environment)
        return self.operator

    def stop_operator(self) -> None:
        """At once; gently where it has a profile to write."""
        self.operator.end(signal.SIGTERM if PROFILE else signal.SIGKILL)

    def await_operator(self) -> None:
        """Until it is ready."""
        self.operator.await_ready(self._readiness_port)

    def start_peer(self) -> Process:
        """The bare watcher."""
        self.peer = self._helper("operator_peer")
        return self.peer

    @property
    def probe_port(self) -> int:
        """Where the operator tells whether it is well."""
        return self._probe_port

    def let_pods_start(self) -> None:
        """Begin the kubelet's part."""
        Path(self.places.go).touch()

    def fail_a_rank(self) -> None:
        """A rank of one agent raises an error."""
        Path(self.places.report).with_suffix(".fail").touch()

    def agents_say(self) -> Document:
        """How the agents are."""
        self.agents.check()
        path = Path(self.places.report)
        words: Document = json.loads(path.read_text()) if path.exists() else {"agents": 0, "running": 0, "answered": []}
        return words

    def namespace(self, name: str) -> None:
        """Make one, as Kubernetes would."""
        self.server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.server.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    def submit(self, namespace: str, name: str, workers: int, steps: int) -> None:
        """A job."""
        self.server.call("POST", jobs_path(namespace), a_job(name, workers, steps))

    def jobs(self, namespace: str) -> list[Document]:
        """As they are now."""
        items: list[Document] = self.server.call("GET", jobs_path(namespace))["items"]
        return items

    def pods(self, namespace: str) -> list[Document]:
        """As they are now."""
        items: list[Document] = self.server.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return items

    def await_true(
        self, holds: Callable[[], bool], what: str, pause: float = 0.2, seconds: float = WAIT_SECONDS
    ) -> float:
        """Until it holds; when that was (monotonic)."""
        deadline = time.monotonic() + seconds
        while not holds():
            self.operator.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds} s for {what}")
            time.sleep(pause)
        return time.monotonic()

    def writes(self, namespace: str) -> Counter[str]:
        """What the operator wrote there so far, from the audit log: "verb resource" to how often."""
        asked = self.server.audit(namespace)
        return Counter({what: count for what, count in asked.items() if what.split()[0] not in READS})

    def stop(self) -> None:
        """All processes but the API server."""
        for process in (self.operator, self.agents, self.peer):
            if process:
                process.end()

    def _helper(self, module: str) -> Process:
        places = self.places.save(self.folder / "places.json")
        return Process(["-m", f"bench.{module}", str(places)], self.folder / f"{module}.log")


@contextmanager
def world(*, held: bool = False, lease: str = "") -> Iterator[World]:
    """All of it, ready; see `World`."""
    binaries.ensure()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        server = ApiServer(folder)
        made: World | None = None
        try:
            server.start()
            crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            server.call("POST", crds, yaml.safe_load(CRD.read_text()))
            server.await_served(f"/apis/{names.API_VERSION}/{names.PLURAL}")
            if lease:  # the chart makes it, the operator only takes it
                namespace, _, name = lease.partition("/")
                server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
                leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
                server.call("POST", leases, {"metadata": {"name": name}, "spec": {}})
            made = World(folder, server, held=held, lease=lease)
            yield made
        finally:
            if made:
                made.stop()
            server.stop()


def jobs_path(namespace: str) -> str:
    """Where the API server has a namespace's jobs."""
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"


def a_job(name: str, workers: int, steps: int) -> Document:
    """As a user writes it."""
    training = {"task": "trainmaster_trainer.tasks.digits:Digits", "steps": steps, "globalBatchSize": max(64, workers)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"strategy": {"type": "AllReduce"}, "training": training, "workers": {"replicas": workers}},
    }


def multiply(world: World, namespace: str, count: int) -> None:
    """So many jobs more like the one that has finished in `namespace`, with their services and their pods."""
    asyncio.run(_multiply(world, namespace, count))


async def _multiply(world: World, namespace: str, count: int) -> None:
    (job,), pods = world.jobs(namespace), world.pods(namespace)
    (service,) = world.server.call("GET", f"/api/v1/namespaces/{namespace}/services")["items"]
    async with Api(world.places) as api:
        await asyncio.gather(*[_copy(api, job, service, pods, f"finished-{number}") for number in range(count)])


async def _copy(api: Api, job: Document, service: Document, pods: list[Document], name: str) -> None:
    old, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    core = f"/api/v1/namespaces/{namespace}"
    made = await api.call("POST", jobs_path(namespace), {**job, "metadata": {"name": name}})
    status = {"status": job["status"]}
    await api.call("PATCH", f"{jobs_path(namespace)}/{name}/status", status, MERGE_PATCH)
    uid = made["metadata"]["uid"]
    spec = {key: value for key, value in service["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    head = _head(service, old, name, uid)
    await api.call("POST", f"{core}/services", {"metadata": head, "spec": {**spec, "clusterIP": "None"}})
    for pod in pods:
        head = _head(pod, old, name, uid)
        await api.call("POST", f"{core}/pods", {"metadata": head, "spec": pod["spec"]})
        await api.call("PATCH", f"{core}/pods/{head['name']}/status", {"status": pod["status"]}, MERGE_PATCH)


def _head(document: Document, old: str, name: str, uid: str) -> Document:
    """The metadata of an object's copy."""
    metadata = document["metadata"]
    return {
        "name": metadata["name"].replace(old, name, 1),
        "labels": {**metadata["labels"], names.LABEL_JOB: name},
        "ownerReferences": [{**metadata["ownerReferences"][0], "name": name, "uid": uid}],
    }
