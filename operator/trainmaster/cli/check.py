"""Run `trainmaster check`: report what is wrong with job files, each problem with its line and its cure.

Other commands load their job by `load_or_report`.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmaster.api.document import load, load_file
from trainmaster.api.for_tasks import unheard
from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import Problem, reason
from trainmaster.api.supported import not_yet_supported
from trainmaster.cli.script_check import counting_hint_of, devices_hint_of, hint_of, spawning_hint_of
from trainmaster.cli.terminal import complain, tell
from trainmaster.local.devices import devices_here
from trainmaster.wire.frameworks import TORCH

EXIT_GOOD = 0
EXIT_BAD = 2

NOT_KEPT = (
    "not set: on a cluster the model is in the pods' own folders and is gone with them, unless the "
    "administrator gives a storage to every job (defaultStorage of the chart)"
)


def check(paths: list[str], output: str, changes: Sequence[str] = ()) -> int:
    """Run the command, and return its exit code. `output` is text or json, `changes` are those of --set."""
    loaded = [(path, _load(Path(path), changes)) for path in paths]
    if output == "json":
        tell(json.dumps({"files": [_as_json(path, result) for path, result in loaded]}, indent=2).split("\n"))
    else:
        for path, result in loaded:
            tell(_as_text(path, result))
    return EXIT_GOOD if all(isinstance(result, TrainingJob) for _, result in loaded) else EXIT_BAD


def load_or_report(path: Path, content: bytes | None = None, changes: Sequence[str] = ()) -> TrainingJob | None:
    """Return the job in a file, or print its problems to stderr and return None.

    `content` is the file's, if it was read already.

    A job with a generateName gets that as its name, without a suffix.
    """
    result = _load(path, changes) if content is None else load(content, changes)
    if isinstance(result, TrainingJob):
        name = result.name or result.metadata.generate_name.rstrip("-")
        return result.model_copy(update={"metadata": result.metadata.model_copy(update={"name": name})})
    complain(*_as_text(str(path), result))
    return None


def report_problems(path: str, problems: list[Problem]) -> None:
    """Print what is wrong with a file to standard error."""
    complain(*_as_text(path, problems))


def _load(path: Path, changes: Sequence[str]) -> TrainingJob | list[Problem]:
    try:
        return load_file(path, changes)
    except OSError as error:
        return [Problem(1, 1, "", f"the file cannot be read: {reason(error)}", "Check the path and its permissions")]


def _as_text(path: str, result: TrainingJob | list[Problem]) -> list[str]:
    if not isinstance(result, TrainingJob):
        return [f"{path}:{problem}" for problem in result]
    later = [f"{path}: note: {note['path']}: {note['message']}" for note in _notes(result, Path(path).parent)]
    name = result.name or result.metadata.generate_name
    return [f"{path}: TrainingJob {name} is good", *later]


def _as_json(path: str, result: TrainingJob | list[Problem]) -> dict[str, Any]:
    if not isinstance(result, TrainingJob):
        return {"file": path, "good": False, "problems": [problem._asdict() for problem in result]}
    return {"file": path, "good": True, "problems": [], "notes": _notes(result, Path(path).parent)}


def _notes(job: TrainingJob, folder: Path) -> list[dict[str, str]]:
    """Return what is no mistake, but what the user should know before the job runs. `folder` is the file's."""
    told = [*not_yet_supported(job.spec), *unheard(job.spec)]
    notes = [{"path": field, "message": message} for field, message in told]
    if job.spec.checkpoint.storage is None:
        notes.append({"path": "spec.checkpoint.storage", "message": NOT_KEPT})
    notes += _images_without_the_framework(job)
    of_command = (
        spawning_hint_of(job, folder),
        devices_hint_of(job, devices_here(os.environ)),
        counting_hint_of(job),
    )
    hints = [("spec.training.framework", hint_of(job, folder)), *(("spec.training.command", one) for one in of_command)]
    return notes + [{"path": path, "message": hint} for path, hint in hints if hint]


def _images_without_the_framework(job: TrainingJob) -> list[dict[str, str]]:
    """Return a note for each role whose image has PyTorch alone, though its script is written for something else."""
    framework = job.spec.training.framework
    roles = () if framework == TORCH else job.spec.roles.items()
    message = f"not set: on a cluster the pods have Trainmaster's own image, which has PyTorch and not {framework}"
    return [
        {"path": f"spec.{role}s.image", "message": message}
        for role, replicas in roles
        if not (replicas.image or (replicas.trainer and replicas.trainer.image))
    ]
