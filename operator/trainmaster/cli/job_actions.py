"""Run `wait`, `stop`, `resume`, `scale` and `delete`: what a person does to a job that is there."""

import argparse
import os
import shutil
import signal
import time

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.problem import reason
from trainmaster.cli.cluster import EXIT_CLUSTER, EXIT_FAILED, EXIT_GOOD, EXIT_INVALID, EXIT_LATE
from trainmaster.cli.targets import LocalRun, answer, find_local
from trainmaster.cli.terminal import complain, tell
from trainmaster.cluster.access import MERGE_PATCH, Access, AccessError, Document
from trainmaster.cluster.following import states
from trainmaster.local.workdir import RUNS

_PAUSE_SECONDS = 0.3
_LOOK_SECONDS = 1.0  # of several jobs each is looked at, though the first has taken all the time


def run(options: argparse.Namespace) -> int:
    """Run one of the commands for each name, and return the largest exit code."""
    until = time.monotonic() + options.timeout if getattr(options, "timeout", None) else None
    named = dict.fromkeys(options.names)
    return max(_run(argparse.Namespace(**{**vars(options), "name": name, "until": until})) for name in named)


def _run(options: argparse.Namespace) -> int:
    local = find_local(options.name, options)
    if local:
        return _LOCAL[options.word](local, options)
    try:
        return _CLUSTER[options.word](Access(options.context, options.namespace), options)
    except AccessError as error:
        complain(f"trainmaster {options.word}: {answer(error, options)}")
        return EXIT_CLUSTER


def _wait(access: Access, options: argparse.Namespace) -> int:
    """Wait for a phase, or for the end."""
    until = options.until and max(options.until, time.monotonic() + _LOOK_SECONDS)
    phase = None
    for job in states(access, options.name, until=until):
        if job is None:
            complain(_late(options, str(phase or Phase.PENDING)))
            return EXIT_LATE
        phase = (job.get("status") or {}).get("phase")
        if phase in TERMINAL or phase == options.phase:
            return _reached(options, str(phase), (job.get("status") or {}).get("message") or "")
    return EXIT_CLUSTER


def _late(options: argparse.Namespace, phase: str) -> str:
    aim = f"has not reached phase {options.phase}" if options.phase else "has not ended"
    return f"trainmaster wait: {options.name} {aim} after {options.timeout:g} s; its phase is {phase}"


def _reached(options: argparse.Namespace, phase: str, message: str) -> int:
    tell([f"{options.name}: {phase}. {message}".rstrip()])
    return EXIT_GOOD if phase in (Phase.SUCCEEDED, options.phase) else EXIT_FAILED


def _stop(access: Access, options: argparse.Namespace) -> int:
    document = access.job(options.name)
    spec = TrainingJob.parse(document).spec  # with the storage that the administrator gave it
    if spec.training.task and spec.checkpoint.storage is None and not options.force:
        complain(
            f"{options.name} has no spec.checkpoint.storage: its checkpoints are inside the pods and go with them, so "
            "it would begin at step 0 again. --force stops it all the same"
        )
        return EXIT_INVALID
    return _suspend(access, options, document, suspend=True)


def _resume(access: Access, options: argparse.Namespace) -> int:
    return _suspend(access, options, access.job(options.name), suspend=False)


def _suspend(access: Access, options: argparse.Namespace, document: Document, *, suspend: bool) -> int:
    phase = (document.get("status") or {}).get("phase")
    if phase in TERMINAL:
        complain(f"{options.name} has {str(phase).lower()} already")
        return EXIT_INVALID
    patch = {"metadata": {"uid": document["metadata"]["uid"]}, "spec": {"suspend": suspend}}
    access.call("PATCH", access.job_path(options.name), patch, kind=MERGE_PATCH)
    tell([f"{options.name} {'stops; trainmaster resume goes on with it' if suspend else 'goes on'}"])
    return EXIT_GOOD


def _scale(access: Access, options: argparse.Namespace) -> int:
    patch = {"spec": {"replicas": options.workers}}
    access.call("PATCH", f"{access.job_path(options.name)}/scale", patch, kind=MERGE_PATCH)
    tell([f"{options.name} gets {options.workers} workers"])
    return EXIT_GOOD


def _delete(access: Access, options: argparse.Namespace) -> int:
    access.call("DELETE", access.job_path(options.name), {"propagationPolicy": "Background"})
    tell([f"{options.name} is deleted, with its pods and its code; what is on a claim or in a bucket stays"])
    return EXIT_GOOD


def _wait_local(run: LocalRun, options: argparse.Namespace) -> int:
    while True:
        alive, status = run.alive, run.status
        if status.finished or status.phase == options.phase:
            return _reached(options, status.phase, status.message or "")
        if not alive:
            complain(f"{options.name} was stopped at phase {status.phase}, and nothing goes on with it")
            return EXIT_FAILED
        if options.until and time.monotonic() > options.until:
            complain(_late(options, status.phase))
            return EXIT_LATE
        time.sleep(_PAUSE_SECONDS)  # nothing tells of a file that another process replaces


def _stop_local(run: LocalRun, options: argparse.Namespace) -> int:
    pid = run.pid
    if pid is None:
        complain(f"{options.name} does not run")
        return EXIT_INVALID
    os.kill(pid, signal.SIGINT)
    tell([f"{options.name} saves and stops"])
    return EXIT_GOOD


def _resume_local(run: LocalRun, _: argparse.Namespace) -> int:
    complain(f"go on with a run on this machine by: trainmaster run JOB.yaml --workdir {run.folder}")
    return EXIT_INVALID


def _scale_local(run: LocalRun, options: argparse.Namespace) -> int:
    complain(
        f"a run on this machine gets another number of workers when it goes on: trainmaster run JOB.yaml --set "
        f"workers.replicas={options.workers} --workdir {run.folder}"
    )
    return EXIT_INVALID


def _delete_local(run: LocalRun, options: argparse.Namespace) -> int:
    if run.alive:
        complain(f"{options.name} still runs; stop it first: trainmaster stop {options.name}")
        return EXIT_INVALID
    if run.folder.resolve().parent != RUNS.resolve():
        complain(
            f"{run.folder} may hold files of yours, too; remove what is not needed: rm -r {run.folder}/checkpoints"
        )
        return EXIT_INVALID
    try:
        shutil.rmtree(run.folder)
    except OSError as error:
        complain(f"trainmaster delete: {error.filename or run.folder}: {reason(error)}")
        return EXIT_INVALID
    tell([f"{run.folder} is deleted, with its checkpoints and logs"])
    return EXIT_GOOD


_CLUSTER = {"wait": _wait, "stop": _stop, "resume": _resume, "scale": _scale, "delete": _delete}
_LOCAL = {
    "wait": _wait_local,
    "stop": _stop_local,
    "resume": _resume_local,
    "scale": _scale_local,
    "delete": _delete_local,
}
