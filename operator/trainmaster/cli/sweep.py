"""Run `trainmaster sweep JOB.yaml --over ...`: train a job with many values, some at a time, and find the best.

What is done is known from the runs and jobs themselves, so the same command goes on where it was, whatever ended it.
"""

import argparse
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from trainmaster.api.document import load_data, read_file
from trainmaster.api.problem import reason
from trainmaster.cli import sweep_plan, sweep_results
from trainmaster.cli.check import report_problems
from trainmaster.cli.cluster import EXIT_FAILED, EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.init import name_of
from trainmaster.cli.interrupts import Interrupts
from trainmaster.cli.sweep_plan import SweepError, Trial
from trainmaster.cli.sweep_results import SweepAim, TrialOutcome
from trainmaster.cli.terminal import complain, tell
from trainmaster.core.figures import short
from trainmaster.local.workdir import RUNS
from trainmaster.wire import bounded_json
from trainmaster.wire.files import make_folder, open_to_write, read_bounded, replace

EXIT_INTERRUPTED = 130

Document = dict[str, Any]


class SweepPlace(Protocol):
    """A place is where the jobs of a sweep run; `parallel` is how many at once unless the user says."""

    parallel: int
    pause: float

    def look(self, trial: Trial) -> TrialOutcome | None:
        """Return how a trial has ended in an earlier call, None where it has not."""

    def start(self, trial: Trial) -> TrialOutcome | None:
        """Start a trial; return its outcome where it cannot be."""

    def poll(self, trial: Trial) -> TrialOutcome | None:
        """Return how a trial has ended, None while it runs."""

    def stop(self) -> None:
        """End what does not go on without this process."""

    def where(self, trial: Trial) -> str:
        """Return what to look at a trial by."""


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    try:
        content = read_file(Path(options.job))
        base = _job(content, options, Trial("", ()))
        metadata = base["metadata"]
        name: str = options.name or f"{metadata.get('name') or metadata['generateName'].rstrip('-')}-sweep"
        longest = name_of(f"{name}-{sweep_plan.MOST_JOBS}")
        if longest != f"{name}-{sweep_plan.MOST_JOBS}":
            raise SweepError(f"{name} cannot begin the names of jobs; give a shorter one, of a-z, 0-9 and -, by --name")
        plan = sweep_plan.trials(name, [sweep_plan.axis(word) for word in options.over], options.random, options.seed)
        jobs = {trial.name: _job(content, options, trial) for trial in plan}
        mark = sweep_plan.fingerprint(plan, base)
        with _alone(name, mark):
            # A run's best evaluation counts where the job keeps that one's checkpoint.
            kept = (base["spec"].get("checkpoint") or {}).get("best") or {}
            is_kept = options.metric.removeprefix("eval ") == kept.get("metric")
            of_run = options.value == "best" if options.value else is_kept
            aim = SweepAim.for_metric(
                options.metric, options.mode or (kept.get("mode") if is_kept else None), best_of_run=of_run
            )
            return _drive(_place(options, jobs, mark), plan, options, aim)
    except SweepError as error:
        complain(f"trainmaster sweep: {error}")
        return error.code
    except OSError as error:
        complain(f"trainmaster sweep: {error.filename or options.job}: {reason(error)}")
        return EXIT_INVALID


def _job(content: bytes, options: argparse.Namespace, trial: Trial) -> Document:
    """Return the job of a trial, checked before anything starts.

    Raises:
        SweepError: it is not valid. Its problems have been printed.
    """
    data = load_data(content, [*options.set, *trial.changes])
    if isinstance(data, list):
        report_problems(str(options.job), data)
        raise SweepError(f"{trial.label or 'the job'} gives no valid job; nothing was started")
    if trial.name:
        data["metadata"] = {key: value for key, value in data["metadata"].items() if key != "generateName"}
        data["metadata"]["name"] = trial.name
        if path := _storage(data):  # else all of them would go on from one another's checkpoints
            data["spec"]["checkpoint"]["storage"]["path"] = f"{path.rstrip('/')}/{trial.name}"
    return data


def _storage(job: Document) -> str | None:
    """Return the folder that a job keeps its checkpoints in, if it names one."""
    storage = (job["spec"].get("checkpoint") or {}).get("storage") or {}
    path = storage.get("path")
    return path if isinstance(path, str) else None


@contextmanager
def _alone(name: str, mark: str) -> Iterator[None]:
    """Hold the file of a sweep, so that no other command drives it, and note what it is.

    Raises:
        SweepError: another one drives it, or there is another sweep of this name.
    """
    make_folder(RUNS)
    path = RUNS / f"{name}.sweep"
    with os.fdopen(open_to_write(RUNS / f"{name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SweepError(f"another command drives the sweep {name}; wait for it, or name this by --name") from None
        try:
            before = read_bounded(path, bounded_json.DOCUMENT_BYTES).decode(errors="replace").strip()
        except FileNotFoundError:
            before = mark
        if before != mark:
            raise SweepError(f"there was a sweep {name} of other values or another job; name this one by --name")
        replace(path, f"{mark}\n".encode())
        yield


def _place(options: argparse.Namespace, jobs: dict[str, Document], mark: str) -> SweepPlace:
    """Return where the jobs are to run.

    Raises:
        SweepError: the cluster cannot be reached, or the code cannot be sent.
    """
    if options.submit or options.namespace or options.context:
        if find_spec("kubernetes") is None:
            raise SweepError("a sweep on a cluster needs the Kubernetes client: pip install 'trainmaster[operator]'")
        from trainmaster.cli.sweep_there import there  # noqa: PLC0415 (it loads the Kubernetes client)

        return there(options, jobs, mark)
    from trainmaster.cli.sweep_here import Here  # noqa: PLC0415 (either is needed alone)

    if options.job == "-":
        raise SweepError("each run reads the job itself, so it must be a file")
    return Here(options.job, options.set, {name: path for name, job in jobs.items() if (path := _storage(job))})


def _drive(place: SweepPlace, plan: list[Trial], options: argparse.Namespace, aim: SweepAim) -> int:
    """Run the trials, at most so many at a time, and return the exit code."""
    done: dict[str, TrialOutcome] = {}
    try:
        with Interrupts() as interrupts, interrupts.raised():
            for outcome in _outcomes(place, plan, options.parallel or place.parallel):
                done[outcome.trial.name] = outcome
                value = aim.value(outcome.status)
                figure = "" if value is None else f", {aim.metric} {short(value)}"
                why = "" if outcome.good else f": {outcome.why}"
                complain(f"{outcome.trial.name} {outcome.phase}{figure} ({len(done)} of {len(plan)}){why}")
    except KeyboardInterrupt:
        place.stop()
        complain(f"{len(done)} of {len(plan)} are done. The same command goes on with the others.")
        return EXIT_INTERRUPTED
    except BaseException:
        place.stop()
        raise
    outcomes = [done[trial.name] for trial in plan]
    tell([*sweep_results.table(outcomes, aim), *sweep_results.ending(outcomes, aim, options.set)])
    return EXIT_GOOD if sweep_results.best(outcomes, aim) else EXIT_FAILED


def _outcomes(place: SweepPlace, plan: list[Trial], most: int) -> Iterator[TrialOutcome]:
    """Yield each trial's outcome when it is known.

    Raises:
        SweepError: the cluster cannot be asked any more.
    """
    looked = [(trial, place.look(trial)) for trial in plan]
    yield from (outcome for _, outcome in looked if outcome)
    waiting = [trial for trial, outcome in looked if outcome is None]
    running: list[Trial] = []
    while waiting or running:
        while waiting and len(running) < most:
            trial = waiting.pop(0)
            complain(f"{trial.name} begins: {trial.label} (trainmaster status {place.where(trial)})")
            if refused := place.start(trial):
                yield refused
            else:
                running.append(trial)
        for trial in list(running):
            if outcome := place.poll(trial):
                running.remove(trial)
                yield outcome
        if running:
            time.sleep(place.pause)  # nothing tells of all of them at once
