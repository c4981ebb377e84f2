"""One job of 1,000 workers on a real API server: how fast its pods are made, and what the operator takes for it.

The kubelet's part is held back while pods are made: it neither writes nor watches, as nobody watches the pods of plain
requests. In the same run the same pods are made by plain concurrent requests, as fast as the API server takes them, and
by kube-controller-manager for an Indexed Job. Then all pods start, with agents over HTTP: what the operator takes until
all train, what it answers while nothing is new, and how soon all agents begin again after a rank has failed.
BENCH_WORKERS=60 takes less than a minute; a result file is written for 1,000 and more only.
"""

import asyncio
import json
import os
import time
from datetime import datetime
from typing import Any

from bench import results
from bench.operator_api import Api, Document
from bench.operator_processes import Process
from bench.operator_world import FOR_EVER, World, jobs_path, world
from tools.onebox import binaries

WORKERS = int(os.environ.get("BENCH_WORKERS", "1000"))
WHOLE = 1000  # fewer workers are a try, which leaves the result file alone
ROUNDS = 3
IN_FLIGHT = (32, 64)
QUIET_SECONDS = 20.0
PATIENCE_SECONDS = 600.0

Figures = dict[str, Any]


def main() -> str:
    """Measure; gives the last line."""
    with world(held=True) as there:
        rounds = [_creation(there, number) for number in range(ROUNDS)]
        indexed = _indexed_job(there)
        print(f"an Indexed Job: {indexed:.0f} pods a second", flush=True)
        there.stop_operator()
        there.start_operator()
        life = _life(there)
    ours = results.median([one["ours"] for one in rounds])
    of_plain = results.median([one["ours"] / max(one["plain"]) for one in rounds])
    created = {"rounds": rounds, "ours_to_plain": round(of_plain, 2), "indexed_job": round(indexed, 1)}
    figures = {
        "workers": WORKERS,
        "created": {**created, "ours_to_indexed_job": round(ours / indexed, 1)},
        "life": life,
    }
    print(json.dumps(figures), flush=True)
    if WORKERS >= WHOLE:
        results.save("scale", figures)
    return (
        f"scale: {WORKERS} pods at {ours:.0f} a second ({of_plain:.2f} of plain requests, {ours / indexed:.1f} times "
        f"an Indexed Job), pods + {life['writes_beside_pods']} writes"
    )


def _creation(there: World, number: int) -> Figures:
    """Ours and plain requests in turns. Return the pods a second of each."""
    ours = _ours(there, f"ours-{number}")
    plain = [_plain(there, f"plain-{number}-{many}", f"ours-{number}", many) for many in IN_FLIGHT]
    _remove(there, f"ours-{number}")
    figures = {"ours": round(ours, 1), "plain": [round(one, 1) for one in plain]}
    print(f"round {number + 1}, pods a second: {figures}", flush=True)
    return figures


def _ours(there: World, namespace: str) -> float:
    there.namespace(namespace)
    there.submit(namespace, "large", WORKERS, FOR_EVER)
    return _rate(there, namespace, "trainmaster")


def _plain(there: World, namespace: str, like: str, in_flight: int) -> float:
    """The same pods without labels and owner, as fast as `in_flight` requests at a time make them."""
    there.namespace(namespace)
    spec = there.server.call("GET", f"/api/v1/namespaces/{like}/pods?limit=1")["items"][0]["spec"]

    async def make() -> None:
        async with Api(there.places, in_flight) as api:
            bodies = ({"metadata": {"name": f"plain-{index}"}, "spec": spec} for index in range(WORKERS))
            await asyncio.gather(*[api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body) for body in bodies])

    asyncio.run(make())
    return _rate(there, namespace, "bench")


def _indexed_job(there: World) -> float:
    """What kube-controller-manager makes of `completions: N, completionMode: Indexed`, with its own defaults."""
    namespace = "indexed"
    there.namespace(namespace)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "trainer:bench"}]}}
    spec = {"completions": WORKERS, "parallelism": WORKERS, "completionMode": "Indexed", "template": template}
    job = {"metadata": {"name": "large"}, "spec": spec}
    arguments = [f"--kubeconfig={there.kubeconfig}", "--controllers=job-controller", "--leader-elect=false"]
    program = str(binaries.path("kube-controller-manager"))
    manager = Process([*arguments, "--secure-port=0"], there.folder / "manager.log", program=program)
    try:
        there.server.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
        return _rate(there, namespace, "kube-controller-manager")
    finally:
        manager.end()


def _rate(there: World, namespace: str, agent: str) -> float:
    """Wait until all pods are there. Return how many were made a second, between the first answer and the last."""
    path = f"/api/v1/namespaces/{namespace}/pods?limit=1"

    def are_there() -> bool:
        listed = there.server.call("GET", path)
        return bool(listed["items"]) and listed["metadata"].get("remainingItemCount", 0) + 1 >= WORKERS

    there.await_true(are_there, f"{WORKERS} pods in {namespace}", seconds=PATIENCE_SECONDS)
    times = sorted(_when(event) for event in there.server.requests(agent) if _makes_a_pod(event, namespace))
    return (len(times) - 1) / (times[-1] - times[0])


def _makes_a_pod(event: Document, namespace: str) -> bool:
    reference = event.get("objectRef", {})
    asked = event["verb"], reference.get("resource"), reference.get("namespace"), reference.get("subresource")
    return asked == ("create", "pods", namespace, None) and event["responseStatus"]["code"] == 201


def _when(event: Document) -> float:
    return datetime.fromisoformat(event["stageTimestamp"]).timestamp()


def _remove(there: World, namespace: str) -> None:
    """There is no garbage collector, and later rounds are to find as little as the first one."""
    there.server.call("DELETE", f"{jobs_path(namespace)}/large")
    at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    there.server.call("DELETE", f"/api/v1/namespaces/{namespace}/pods", at_once)
    there.await_true(lambda: not there.pods(namespace), f"no pods in {namespace}", seconds=PATIENCE_SECONDS)


def _life(there: World) -> Figures:
    """From creation until all train, a while without news, and after the failure of one rank."""
    namespace = "life"
    there.await_operator()
    there.namespace(namespace)
    before = there.operator.cpu_seconds()
    there.submit(namespace, "large", WORKERS, FOR_EVER)
    _rate(there, namespace, "trainmaster")
    began = time.monotonic()
    there.let_pods_start()
    _await_training(there, namespace, 1)
    started = time.monotonic() - began
    cpu = there.operator.cpu_seconds() - before
    writes = there.writes(namespace)
    figures = {
        "seconds_from_the_first_start_to_running": round(started, 1),
        "cpu_millis_per_pod": round(1000 * cpu / WORKERS, 1),
        "rss_mib": round(there.operator.rss_mib(), 1),
        "writes": dict(writes),
        "writes_beside_pods": sum(writes.values()) - writes["create pods"],
        "quiet": _quiet(there),
        "failure": _failure(there, namespace),
    }
    print(f"a life: {figures}", flush=True)
    return figures


def _await_training(there: World, namespace: str, attempt: int) -> None:
    def trains() -> bool:
        (status,) = (job.get("status", {}) for job in there.jobs(namespace))
        return (status.get("phase"), status.get("attempt")) == ("Running", attempt)

    there.await_true(trains, f"attempt {attempt} to run", seconds=PATIENCE_SECONDS)


def _quiet(there: World) -> Figures:
    """What is said and answered while only steps go on."""
    before, cpu, began = there.agents_say(), there.operator.cpu_seconds(), time.monotonic()
    time.sleep(QUIET_SECONDS)
    after, seconds = there.agents_say(), time.monotonic() - began
    more = {what: round((after[what] - before[what]) / seconds, 1) for what in ("beats", "bodies", "bytes")}
    spent = (there.operator.cpu_seconds() - cpu) / seconds
    return {**{f"{what}_per_second": count for what, count in more.items()}, "core": round(spent, 3)}


def _failure(there: World, namespace: str) -> Figures:
    """How soon after the failure of a rank the agents are told to run the next attempt."""
    before = there.operator.cpu_seconds()
    there.fail_a_rank()
    _await_training(there, namespace, 2)
    words = there.agents_say()
    told = sorted(dict(one)[2] - words["failed"] for one in words["ran"] if 2 in dict(one))
    return {
        "seconds_to_the_first_agent": round(told[0], 2),
        "seconds_to_the_last_agent": round(told[-1], 2),
        "cpu_seconds": round(there.operator.cpu_seconds() - before, 2),
    }
