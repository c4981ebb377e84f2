"""What the operator costs: memory, processor time and API writes, with 1,100 jobs on a real API server.

A thousand jobs have finished, a hundred train with two workers each. Beside it, in the same run, the least that a
Python process can do with the same objects and heartbeats (`operator_peer`). A job of four workers that trains for
20 s costs its pods and 6 writes more: a service, the phases Starting, Running and Succeeded, one look at its
progress, and one event. Heartbeats cost none.
"""

import time
from collections import Counter
from functools import partial
from typing import Any

from bench import results
from bench.operator_processes import Process
from bench.operator_world import FOR_EVER, World, multiply, world

FINISHED_JOBS = 1000
RUNNING_JOBS = 100
WORKERS = 2
LIFE_WORKERS = 4
LIFE_STEPS = 200  # 20 s
QUIET_SECONDS = 30.0
BUSY_SECONDS = 60.0
SETTLE_SECONDS = 8.0

Figures = dict[str, Any]


def main() -> str:
    """Measure; gives the last line."""
    with world() as there:
        life = _life(there)
        _tell("a job's life", life)
        empty = round(there.operator.rss_mib(), 1)
        _thousand_finished(there)
        quiet = _window(there, QUIET_SECONDS)
        _tell("no job runs", quiet)
        _hundred_running(there)
        busy = _busy(there)
        _tell("100 jobs run", busy)
        again = _start_again(there)
        _tell("started again", again)
        there.stop_operator()
    figures = {"life": life, "rss_mib_empty": empty, "quiet": quiet, "busy": busy, "restart": again}
    results.save("operator", {**_jobs(), **figures})
    rss, cpu = busy["operator"]["rss_mib"], quiet["operator"]["cpu_seconds_per_minute"]
    busy_cpu, more = busy["operator"]["cpu_seconds_per_minute"], life["writes_beside_pods"]
    return (
        f"operator: {rss:.0f} MiB, {cpu:.1f} CPU-s per idle minute ({busy_cpu:.1f} with {RUNNING_JOBS} jobs training), "
        f"pods + {more} writes per job"
    )


def _jobs() -> Figures:
    return {"finished_jobs": FINISHED_JOBS, "running_jobs": RUNNING_JOBS, "workers_per_job": WORKERS}


def _tell(what: str, figures: Figures) -> None:
    print(f"{what}: {figures}", flush=True)


def _life(there: World) -> Figures:
    """One job from creation to its end, alone in its namespace."""
    for namespace in ("life", "finished"):
        there.namespace(namespace)
    there.submit("life", "digits", LIFE_WORKERS, LIFE_STEPS)
    there.submit("finished", "mould", WORKERS, 10)
    for namespace in ("life", "finished"):
        there.await_true(partial(_over, there, namespace), f"the end of the job in {namespace}")
    time.sleep(2)  # events are posted in the background
    writes = there.writes("life")
    pods = writes["create pods"]
    return {"workers": LIFE_WORKERS, "writes": dict(writes), "writes_beside_pods": sum(writes.values()) - pods}


def _over(there: World, namespace: str) -> bool:
    jobs, pods = there.jobs(namespace), there.pods(namespace)
    ended = all(pod["status"]["phase"] == "Succeeded" for pod in pods)
    return bool(pods) and ended and all(job["status"]["phase"] == "Succeeded" for job in jobs)


def _thousand_finished(there: World) -> None:
    """Made while nobody watches; then operator and peer begin."""
    there.stop_operator()
    began = time.monotonic()
    multiply(there, "finished", FINISHED_JOBS - 1)
    print(f"made {FINISHED_JOBS} finished jobs in {time.monotonic() - began:.0f} s", flush=True)
    there.start_peer()
    there.start_operator()
    there.await_operator()
    time.sleep(SETTLE_SECONDS)


def _hundred_running(there: World) -> None:
    there.namespace("running")
    began = time.monotonic()
    for number in range(RUNNING_JOBS):
        there.submit("running", f"digits-{number}", WORKERS, FOR_EVER)
    there.await_true(lambda: _training(there), "all jobs to run")
    print(f"{RUNNING_JOBS} jobs run after {time.monotonic() - began:.1f} s", flush=True)
    time.sleep(SETTLE_SECONDS)


def _training(there: World) -> bool:
    if there.agents_say()["running"] < RUNNING_JOBS * WORKERS:
        return False
    return all(job.get("status", {}).get("phase") == "Running" for job in there.jobs("running"))


def _window(there: World, seconds: float) -> Figures:
    """What operator and peer take in a while."""
    peer = there.peer
    assert peer
    before = there.operator.cpu_seconds(), peer.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - before[2]) / 60
    ours = _figures(there.operator, before[0], minutes)
    theirs = _figures(peer, before[1], minutes)
    ratio = round(ours["rss_mib"] / theirs["rss_mib"], 2)
    return {"operator": ours, "peer": theirs, "rss_ratio": ratio}


def _figures(process: Process, before: float, minutes: float) -> Figures:
    spent = (process.cpu_seconds() - before) / minutes
    return {"rss_mib": round(process.rss_mib(), 1), "cpu_seconds_per_minute": round(spent, 2)}


def _busy(there: World) -> Figures:
    """All jobs train: also what is written meanwhile, and how many heartbeats that is without."""
    began = time.monotonic()
    writes, beats = there.writes("running"), there.agents_say()["beats"]
    figures = _window(there, BUSY_SECONDS)
    minutes = (time.monotonic() - began) / 60
    heard = there.agents_say()["beats"] - beats
    written = there.writes("running") - writes
    per_minute = {what: round(count / minutes, 1) for what, count in written.items()}
    cpu = figures["operator"]["cpu_seconds_per_minute"] / figures["peer"]["cpu_seconds_per_minute"]
    return {
        **figures,
        "cpu_ratio": round(cpu, 2),
        "heartbeats_per_minute": round(heard / minutes),
        "writes_per_minute": per_minute,
    }


def _start_again(there: World) -> Figures:
    """SIGKILL, a job submitted while nobody is there, and a new operator. Nothing that trains may notice."""
    there.namespace("late")
    there.stop_operator()
    there.submit("late", "digits", WORKERS, FOR_EVER)
    began = time.monotonic()
    there.start_operator()
    there.await_operator()
    ready = time.monotonic()
    pods = there.await_true(lambda: len(there.pods("late")) == WORKERS, "the new job's pods", pause=0.02)
    heard = there.await_true(lambda: _all_answered(there, began), "all agents to be answered", pause=0.02)
    statuses = [job["status"] for job in there.jobs("running")]
    restarted = Counter(status["attempt"] for status in statuses if status["attempt"] != 1)
    return {
        "seconds_to_ready": round(ready - began, 2),
        "seconds_to_the_pods_of_a_new_job": round(pods - began, 2),
        "seconds_to_all_agents_have_orders": round(heard - began, 2),
        "jobs_disturbed": sum(restarted.values()) + sum(status["phase"] != "Running" for status in statuses),
    }


def _all_answered(there: World, since: float) -> bool:
    answered = [when for when in there.agents_say()["answered"] if when > since]
    return len(answered) >= RUNNING_JOBS * WORKERS
