"""Have the trainer look at a job's task in a process of its own, because the control side never imports torch."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import reason
from trainmaster.core.replica_environment import training_plan
from trainmaster.local.processes import inherited_environment
from trainmaster.local.variables import plain_variables
from trainmaster.wire import codec, names
from trainmaster.wire.measured import Measured


class MeasureError(Exception):
    """The task cannot be measured. The text says why."""


def measure(job: TrainingJob, folder: Path, machine: bool) -> Measured:
    """Return the sizes of the job's model; with `machine` the speeds as well, which takes some seconds.

    Raises:
        MeasureError: the task cannot be used, or there is no trainer in this environment.
    """
    plan = training_plan(job)
    place = folder / plan.working_directory if plan.working_directory else folder
    plan = dataclasses.replace(plan, working_directory=str(place.resolve()))
    command = [sys.executable, "-P", "-m", "trainmaster_trainer.measure", *(["--machine"] if machine else [])]
    environment = {
        **inherited_environment(folder, Path.cwd()),
        **plain_variables(job.spec.workers.env),
        names.ENV_TRAINING: codec.encode(plan).decode(),
        names.ENV_CHECKPOINTS: os.devnull,
    }
    with tempfile.TemporaryFile() as answer:  # not stdout, where the task may print
        try:
            done = subprocess.run(
                [*command, "--answer", str(answer.fileno())],
                env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, pass_fds=[answer.fileno()],
            )  # fmt: skip
        except OSError as error:
            raise MeasureError(f"the trainer could not be started: {reason(error)}.") from None
        answer.seek(0)
        found = answer.read()
    if done.returncode != 0:
        raise MeasureError(_reason(done.stderr.decode(errors="replace")))
    if not found:
        raise MeasureError(
            "spec.training.task: its module ended the process that looked at it; it must only define it."
        )
    return codec.decode(Measured, found)


def _reason(errors: str) -> str:
    lines = errors.strip().splitlines()
    if any("No module named 'torch'" in line for line in lines):
        return "torch is not installed here: `make setup`, or pip install '.[trainer]', in a checkout."
    return lines[-1] if lines else "the trainer ended without a word."
