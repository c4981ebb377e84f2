"""Run the jobs of a sweep on a cluster: each is a TrainingJob, submitted with the same code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import TERMINAL
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.cluster import EXIT_CLUSTER
from trainmaster.cli.submit import packed_code
from trainmaster.cli.sweep_plan import SweepError, Trial
from trainmaster.cli.sweep_results import TrialOutcome
from trainmaster.cluster.access import Access, AccessError
from trainmaster.cluster.submission import PackedCode, submit
from trainmaster.wire import names
from trainmaster.wire.bundle import BundleError

MARK = "trainmaster.dev/sweep"
_ABSENT = 404
_OF_THIS_JOB = (400, 409, 422)  # answers that say nothing about the other jobs

Document = dict[str, Any]


def there(options: argparse.Namespace, jobs: dict[str, Document], mark: str) -> There:
    """Return the cluster that the command line names, with the code that all jobs run.

    Raises:
        SweepError: the cluster cannot be reached, or the code cannot be sent.
    """
    first = next(iter(jobs.values()))
    try:
        code = packed_code(TrainingJob.parse(first), options)
    except BundleError as error:
        raise SweepError(str(error)) from None
    with _asked():
        return There(Access(options.context, options.namespace or first["metadata"].get("namespace")), jobs, code, mark)


@contextmanager
def _asked() -> Iterator[None]:
    """Say of a cluster that cannot be asked how to go on.

    Raises:
        SweepError: it cannot be asked.
    """
    try:
        yield
    except AccessError as error:
        again = "What runs there goes on; the same command goes on with the sweep"
        raise SweepError(f"{error}. {again}", EXIT_CLUSTER) from None


class There:
    """There are the jobs of a sweep on a cluster. They go on when this process ends."""

    parallel, pause = 4, 2.0

    def __init__(self, access: Access, jobs: dict[str, Document], code: PackedCode | None, mark: str) -> None:
        self._access = access
        self._jobs = jobs  # by the names of the trials
        self._code = code
        self._mark = mark

    def look(self, trial: Trial) -> TrialOutcome | None:
        """Return how a trial has ended, None where it has not.

        Raises:
            SweepError: the cluster cannot be asked, or there is another job of this name.
        """
        job = self._job_of(trial)
        return _outcome(trial, job) if job else None

    def start(self, trial: Trial) -> TrialOutcome | None:
        """Submit a trial, unless an earlier call has. Return its outcome where the cluster does not take it.

        Raises:
            SweepError: the cluster cannot be asked.
        """
        job = self._job_of(trial)
        if job is not None and names.SUBMISSION not in job["metadata"]["annotations"]:
            return None  # one whose submission was cut off is submitted again, in its place
        job = self._jobs[trial.name]
        metadata = job["metadata"]
        marked = {**metadata, "annotations": {**(metadata.get("annotations") or {}), MARK: self._mark}}
        with _asked():
            try:
                submit(self._access, {**job, "metadata": marked}, self._code)
            except AccessError as error:
                if error.status not in _OF_THIS_JOB:
                    raise
                return TrialOutcome(trial, "Refused", TrainingJobStatus(), str(error))
        return None

    def poll(self, trial: Trial) -> TrialOutcome | None:
        """Return how a trial has ended, None while it runs. One that was deleted has failed.

        Raises:
            SweepError: the cluster cannot be asked.
        """
        job = self._job_of(trial)
        if job is None:
            return TrialOutcome(trial, "Deleted", TrainingJobStatus(), "it was deleted")
        return _outcome(trial, job)

    def stop(self) -> None:
        """Leave the jobs alone: the next call of the same sweep finds them."""

    def where(self, trial: Trial) -> str:
        """Return what to look at a trial by."""
        return trial.name

    def _job_of(self, trial: Trial) -> Document | None:
        with _asked():
            try:
                job = self._access.job(trial.name)
            except AccessError as error:
                if error.status == _ABSENT and "there is no job" in str(error):
                    return None
                raise
        if (job["metadata"].get("annotations") or {}).get(MARK) != self._mark:
            raise SweepError(f"there is a job {trial.name} of another sweep, or of none; name this one by --name")
        return job


def _outcome(trial: Trial, job: Document) -> TrialOutcome | None:
    status = TrainingJobStatus.read(job.get("status"))
    return TrialOutcome(trial, status.phase, status, status.message or "") if status.phase in TERMINAL else None
