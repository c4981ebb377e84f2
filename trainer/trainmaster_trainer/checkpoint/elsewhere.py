"""Another job's checkpoints, for `spec.checkpoint.resumeFrom`: its folder by path, or found by its name beside ours.

On a claim each job has the folder NAME-UID (eight characters of its uid) beside ours. Of local runs the folder is
NAME-DATE, with `checkpoints` in it. Of several runs of one name, the one that saved last counts.

Called by `resume.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster_trainer.checkpoint.load import newest_step
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.settings import Settings

_LOCAL = "checkpoints"


def source_of(settings: Settings) -> Path:
    """The folder that `resumeFrom` names.

    Raises:
        ConfigurationError: there is no checkpoint of such a job.
    """
    plan = settings.plan
    if plan.resume_from is not None:
        return Path(plan.resume_from)
    own, job = settings.checkpoints.absolute(), plan.resume_job or ""
    found = [folder for folder in _beside(own, job) if folder != own and newest_step(folder)]
    if not found:
        place = own.parent.parent if own.name == _LOCAL else own.parent
        raise ConfigurationError(
            f"spec.checkpoint.resumeFrom.job: {job!r} has no good checkpoint in {place}. Both jobs must keep theirs on "
            "one claim (spec.checkpoint.storage.persistentVolumeClaim), or in one folder of local runs; else write "
            "its folder as resumeFrom.path."
        )
    return max(found, key=_last_saved)


def _beside(own: Path, job: str) -> list[Path]:
    """Folders of runs of `job`: not those of another job whose name only begins like it."""
    if own.name == _LOCAL:
        folders = [folder / _LOCAL for folder in _named(own.parent.parent, job, r"(-[0-9T-]+)?")]
        return [folder for folder in folders if folder.is_dir()]
    return _named(own.parent, job, "-[0-9a-f]{8}")


def _named(place: Path, job: str, suffix: str) -> list[Path]:
    return [folder for folder in place.iterdir() if re.fullmatch(re.escape(job) + suffix, folder.name)]


def _last_saved(folder: Path) -> float:
    return max(manifest.stat().st_mtime for manifest in folder.glob("step-*/manifest.json"))
