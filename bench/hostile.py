"""The whole operator, with a real API server, under strangers' connections, heavy jobs and large jobs.

Wanted: the leader stays the leader, its memory stays within 1.5 times that of a calm minute, a true heartbeat is
answered within a second, and a small job has its pod within 2 s beside jobs of 3,000 replicas. BENCH_REPLICAS and
BENCH_SECONDS make it shorter. A machine with other work on it measures that work.
"""

import http.client
import json
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from trainmaster.wire import codec, names

from bench import hostile_crowd, results
from bench.operator_api import Document
from bench.operator_processes import Process
from bench.operator_world import FOR_EVER, World, a_job, jobs_path, world
from tests.cluster.apiserver import RefusedRequestError
from tests.fakes.pod_agent import first_heartbeat

REPLICAS, WHOLE = int(os.environ.get("BENCH_REPLICAS", "3000")), 3000
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
LARGE_JOBS, SMALL_JOBS = 3, 3
HEAVY_JOBS, HEAVY_BYTES, LONGEST_NOTE = 60, 1_200_000, 2000
NAMESPACE, LEASE = "calm", "bench/operator"
BEAT_SECONDS, AGAIN_SECONDS = 0.25, 0.05

Figures = dict[str, Any]


def main() -> str:
    """Measure; gives the last line."""
    with world(held=True, lease=LEASE) as there:
        there.let_pods_start()
        there.namespace(NAMESPACE)
        there.submit(NAMESPACE, "digits", 2, FOR_EVER)
        there.await_true(lambda: _phase(there, NAMESPACE) == "Running", "the calm job to run")
        witness = Witness(there)
        calm = witness.look(SECONDS / 3)
        strangers = _strangers(there, witness)
        heavy = _heavy_jobs(there, witness)
        there.agents.end()  # the pods that come now start nothing
        large = _large_jobs(there)
        led = there.server.call("GET", witness.lease)["spec"]
    kept = led["holderIdentity"] == witness.leader and not witness.others
    under = [strangers, heavy]
    figures = {
        "replicas": REPLICAS,
        "calm": calm,
        "strangers": strangers,
        "heavy_jobs": heavy,
        "large_jobs": large,
        "leader_kept": kept,
        "memory_times": round(max(one["rss_mib"] for one in under) / calm["rss_mib"], 2),
        "slowest_heartbeat_seconds": max(one["slowest_seconds"] for one in under),
        "small_pod_seconds": max(large["small_pod_seconds"]),
    }
    print(json.dumps(figures), flush=True)
    if REPLICAS >= WHOLE:
        results.save("hostile", figures)
    return (
        f"hostile: the leader {'stayed' if kept else 'CHANGED'}, memory {figures['memory_times']} times calm, slowest "
        f"true heartbeat {figures['slowest_heartbeat_seconds']} s, a small job's pod after "
        f"{figures['small_pod_seconds']} s beside {LARGE_JOBS} x {REPLICAS}"
    )


class Witness:
    """A true agent that reports again and again, each time on a new connection, and looks at the operator meanwhile."""

    def __init__(self, there: World) -> None:
        self._there = there
        self._pod = there.pods(NAMESPACE)[0]
        self._token = _token(there, self._pod)
        namespace, _, name = LEASE.partition("/")
        self.lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self.leader = str(there.server.call("GET", self.lease)["spec"]["holderIdentity"])
        self.resets = 0  # new connections that were closed before they had shown their token
        self.others = 0  # how often another operator was seen to lead, or this one refused to answer

    def look(self, seconds: float) -> Figures:
        """Report for so long. Return the times of the answers and the most memory."""
        return self.look_while(_for(seconds))

    def look_while(self, rounds: Iterator[None]) -> Figures:
        """Report as long as there are rounds."""
        times: list[float] = []
        most = 0.0
        for _ in rounds:
            times.append(self._beat())
            most = max(most, self._there.operator.rss_mib())
            held = self._there.server.call("GET", self.lease)["spec"]["holderIdentity"]
            self.others += held != self.leader
            time.sleep(BEAT_SECONDS)
        median = results.median(times)
        return {
            "beats": len(times),
            "resets": self.resets,
            "median_seconds": round(median, 4),
            "slowest_seconds": round(max(times), 3),
            "rss_mib": round(most, 1),
        }

    def _beat(self) -> float:
        """Return after how many seconds it is answered. Like an agent, it tries again where its connection is reset."""
        began = time.monotonic()
        while True:
            try:
                self._exchange()
            except (OSError, http.client.HTTPException):
                self.resets += 1
                time.sleep(AGAIN_SECONDS)
            else:
                return time.monotonic() - began

    def _exchange(self) -> None:
        body = codec.encode(first_heartbeat(self._pod))  # older than any of the pod's own agent: answered, not kept
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        address = urlsplit(self._there.places.operator)
        line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            line.request("POST", names.HEARTBEAT_PATH, body, headers)
            answer = line.getresponse()
            answer.read()
        finally:
            line.close()
        self.others += answer.status not in (200, 204)


def _for(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def _token(there: World, pod: Document) -> str:
    """What the kubelet would project into the pod."""
    metadata = pod["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    spec = {"audiences": [names.TOKEN_AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/default/token"
    return str(there.server.call("POST", path, {"spec": spec})["status"]["token"])


def _strangers(there: World, witness: Witness) -> Figures:
    address, report = urlsplit(there.places.operator), there.folder / "crowd.json"
    arguments = [str(address.hostname), str(address.port), str(report)]
    crowd = Process(["-m", "bench.hostile_crowd", *arguments], there.folder / "crowd.log")
    try:
        there.await_true(
            lambda: report.exists() and json.loads(report.read_text())["opened"] >= hostile_crowd.IDLE,
            "strangers to come",
        )
        figures = witness.look(SECONDS)
        crowd.check()
        figures = {**figures, **json.loads(report.read_text())}
    finally:
        crowd.end()
    print(f"strangers: {figures}", flush=True)
    return figures


def _heavy_jobs(there: World, witness: Witness) -> Figures:
    """A tenant creates suspended jobs that weigh as much as the API server takes."""
    there.namespace("heavy")
    taken, why = 0, ""

    def create() -> Iterator[None]:
        nonlocal taken, why
        for number in range(HEAVY_JOBS):
            job = a_job(f"heavy-{number}", 1, 10)
            notes = {f"a{place}": "x" * LONGEST_NOTE for place in range(HEAVY_BYTES // LONGEST_NOTE)}
            job["spec"] |= {"suspend": True}
            job["spec"]["workers"]["template"] = {"metadata": {"annotations": notes}}
            try:
                there.server.call("POST", jobs_path("heavy"), job)
                taken += 1
            except RefusedRequestError as refusal:
                why = str(refusal)[:300]
            yield

    figures = {**witness.look_while(create()), "taken": taken, "refused": why}
    print(f"heavy jobs: {figures}", flush=True)
    return figures


def _large_jobs(there: World) -> Figures:
    """How soon a small job has its pod, alone and beside large ones."""
    there.namespace("large")
    alone = [_small(there, f"alone-{number}") for number in range(SMALL_JOBS)]
    for number in range(LARGE_JOBS):
        there.submit("large", f"large-{number}", REPLICAS, FOR_EVER)
    path = "/api/v1/namespaces/large/pods?limit=1"
    there.await_true(lambda: bool(there.server.call("GET", path)["items"]), "the first pods of the large jobs")
    beside = []
    for number in range(SMALL_JOBS):
        time.sleep(1)
        beside.append(_small(there, f"beside-{number}"))
    left = there.server.call("GET", path)
    made = len(left["items"]) + left["metadata"].get("remainingItemCount", 0)
    figures = {"alone_seconds": alone, "small_pod_seconds": beside, "pods_of_large_jobs_by_then": made}
    print(f"large jobs: {figures}", flush=True)
    return figures


def _small(there: World, namespace: str) -> float:
    there.namespace(namespace)
    began = time.monotonic()
    there.submit(namespace, "small", 1, 10)
    return round(there.await_true(lambda: bool(there.pods(namespace)), f"the pod of {namespace}", 0.02) - began, 2)


def _phase(there: World, namespace: str) -> str:
    (job,) = there.jobs(namespace)
    return str(job.get("status", {}).get("phase"))
