"""Find another job's checkpoints, for `spec.checkpoint.resumeFrom`: by path or URL, or by its name beside ours.

On a claim, and in an object store, each job has the folder NAME-UID (eight characters of its uid) beside ours. Of local
runs the folder is NAME-DATE, with `checkpoints` in it; in an object store it is NAME. Of several runs of one name, the
one that saved last counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster_trainer.checkpoint.lineage import trusting_owner
from trainmaster_trainer.checkpoint.load import newest_step
from trainmaster_trainer.checkpoint.remote import Remote
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.settings import Settings

FIELD = "spec.checkpoint.resumeFrom"
_LOCAL = "checkpoints"
_UID = "-[0-9a-f]{8}"
_DATE = r"(-\d{8}-\d{6}(-\d+)?)?"


def source_of(settings: Settings) -> str:
    """Return the folder, or the URL in an object store, that `resumeFrom` names.

    Raises:
        ConfigurationError: there is no checkpoint of such a job.
    """
    plan = settings.plan
    if plan.resume_from is not None:
        return plan.resume_from
    if plan.checkpoint_url is not None:
        return _in_store(plan.checkpoint_url, plan.checkpoint_endpoint, plan.resume_job or "")
    own, job = settings.checkpoints.absolute(), plan.resume_job or ""
    found = [folder for folder in _beside(own, job) if folder != own and newest_step(folder, trusting_owner(folder))]
    if not found:
        raise _nothing(job, str(own.parent.parent if own.name == _LOCAL else own.parent))
    return str(max(found, key=lambda one: max(path.stat().st_mtime for path in one.glob("step-*/manifest.json"))))


def _in_store(own: str, endpoint: str | None, job: str) -> str:
    above, _, own_name = own.rpartition("/")
    stores = {
        name: Remote(f"{above}/{name}", endpoint, FIELD)
        for name in Remote(above, endpoint, FIELD).folders()
        if name != own_name and re.fullmatch(re.escape(job) + f"({_UID})?", name)
    }
    saved = {name: store.last_saved() for name, store in stores.items()}
    newest = max(saved, key=lambda name: saved[name], default=None)
    if newest is None or not saved[newest]:
        raise _nothing(job, above)
    return f"{above}/{newest}"


def _nothing(job: str, place: str) -> ConfigurationError:
    return ConfigurationError(
        f"{FIELD}.job: {job!r} has no good checkpoint in {place}. Both jobs must keep theirs on one claim "
        "(spec.checkpoint.storage.persistentVolumeClaim), in one objectStore.url, or in one folder of local runs; else "
        "write its folder or URL as resumeFrom.path."
    )


def _beside(own: Path, job: str) -> list[Path]:
    """Return the folders of runs of `job`, without those of a job whose name only begins like it."""
    is_local = own.name == _LOCAL
    place, suffix = (own.parent.parent, _DATE) if is_local else (own.parent, _UID)
    runs = [folder for folder in place.iterdir() if re.fullmatch(re.escape(job) + suffix, folder.name)]
    return [folder / _LOCAL for folder in runs if (folder / _LOCAL).is_dir()] if is_local else runs
