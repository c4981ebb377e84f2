"""Find another job's checkpoints, for `spec.checkpoint.resumeFrom`: by path or URL, or by its name beside ours.

On a claim, and in an object store, each job has the folder NAME-UID (eight characters of its uid) beside ours. Of local
runs the folder is NAME-DATE, with `checkpoints` in it; in an object store it is NAME. Of several runs of one name, the
one that saved last counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster_trainer.checkpoint import lineage
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
    plan, job, own = settings.plan, settings.plan.resume_job or "", settings.checkpoints.absolute()
    is_local = own.name == _LOCAL
    place = str(own.parent.parent if is_local else own.parent)
    if plan.resume_from is not None:
        return plan.resume_from
    if plan.checkpoint_url is not None:
        place, _, own_name = plan.checkpoint_url.rpartition("/")
        newest = _newest_in_store(place, own_name, plan.checkpoint_endpoint, job)
    else:
        # No folder of a job whose name only begins like it.
        name = re.compile(re.escape(job) + (_DATE if is_local else _UID))
        runs = [folder for folder in Path(place).iterdir() if name.fullmatch(folder.name)]
        folders = [folder / _LOCAL for folder in runs if (folder / _LOCAL).is_dir()] if is_local else runs
        found = [
            folder for folder in folders if folder != own and newest_step(folder, lineage.read(folder, None).trusts)
        ]
        saved = {str(one): max(path.stat().st_mtime for path in one.glob("step-*/manifest.json")) for one in found}
        newest = max(saved, key=lambda one: saved[one], default=None)
    if newest is None:
        raise ConfigurationError(
            f"{FIELD}.job: {job!r} has no good checkpoint in {place}. Both jobs must keep theirs on one claim "
            "(spec.checkpoint.storage.persistentVolumeClaim), in one objectStore.url, or in one folder of local runs; "
            "else write its folder or URL as resumeFrom.path."
        )
    return newest


def _newest_in_store(place: str, own_name: str, endpoint: str | None, job: str) -> str | None:
    """Return the URL beside ours where the job has saved last."""
    stores = {
        name: Remote(f"{place}/{name}", endpoint, FIELD)
        for name in Remote(place, endpoint, FIELD).folders()
        if name != own_name and re.fullmatch(re.escape(job) + f"({_UID})?", name)
    }
    saved = {name: store.last_saved() for name, store in stores.items()}
    newest = max(saved, key=lambda name: saved[name], default=None)
    return f"{place}/{newest}" if newest is not None and saved[newest] else None
