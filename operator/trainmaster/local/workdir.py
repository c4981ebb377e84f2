"""Keep the folder of one local run.

```
DIR/status.json   the same `.status` that a cluster shows
DIR/job.json      the job as it was run last, with the changes of --set
DIR/checkpoints/  step-00000050/..., metrics.jsonl, result.json
DIR/logs/         one file per agent; trainmaster.log and warm-parent.log where there was something to say
```
One run at a time may use a folder: it is locked for as long as the run lives, and so is the one with the checkpoints,
which may be another run's `spec.checkpoint.storage.path`.
"""

import contextlib
import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import reason
from trainmaster.api.status import TrainingJobStatus
from trainmaster.wire import bounded_json
from trainmaster.wire.files import make_folder, open_to_write, read_bounded, replace, why_foreign

RUNS = Path(".trainmaster")  # folders of the runs that name none themselves
LOCK, LOGS = ".lock", "logs"
_WRITTEN = (LOCK, "metrics.jsonl")
_REPLACED = ("status.json", "job.json", "result.json", "lineage.json", "attempt.json")


class WorkdirError(Exception):
    """The folder cannot be used. The text names cause and cure."""


def _locked(name: str, folders: tuple[Path, ...]) -> IO[str]:
    """Create the folders, and return a file that locks the first of them for as long as it is open.

    Raises:
        WorkdirError: a folder cannot be used, or another run uses it.
    """
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for folder in folders[1:]:
            if folder.is_symlink():
                raise WorkdirError(f"{folder} is a symbolic link; remove it, or choose another folder")
        _check_own(folders)
        lock = os.fdopen(open_to_write(folders[0] / LOCK), "w")
    except OSError as error:
        raise WorkdirError(f"{name}: {reason(error)}; choose another folder, or make room") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise WorkdirError(f"{name} is in use by another run; wait for its end, or choose another folder") from None
    except OSError as error:  # Lustre without -o flock, NFS without a lock daemon, some FUSE mounts
        lock.close()
        raise WorkdirError(
            f"{name} cannot be locked against another run ({reason(error)}); choose a folder on another file system"
        ) from None
    return lock


def _check_own(folders: tuple[Path, ...]) -> None:
    """Refuse a folder in which a name of ours is something that would lead our writes elsewhere.

    Raises:
        WorkdirError: there is such a name.
    """
    for folder in folders:
        logs = [path.name for path in folder.iterdir()] if folder.name == LOGS else []
        for name in (*_WRITTEN, *_REPLACED, *logs):
            path = folder / name
            if why := why_foreign(path, is_replaced=name in _REPLACED):
                raise WorkdirError(f"{path} {why}; remove it, or choose another folder")


def _read(path: Path) -> Any:
    """Return what a document says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, or larger than any of ours.
    """
    return bounded_json.document(read_bounded(path, bounded_json.DOCUMENT_BYTES))


class Workdir:
    """Create the folders and hold their locks for the time of a `with`.

    `shown` is the folder as the user wrote it; `path` is absolute, because ranks work elsewhere.
    """

    def __init__(self, shown: Path, checkpoints: Path | None = None) -> None:
        self.shown = shown
        self.path = shown.absolute()
        self.logs = self.path / LOGS
        self.checkpoints = checkpoints or self.path / "checkpoints"
        self.status_file = self.path / "status.json"
        own = (self.path, self.logs, self.path / "checkpoints")
        self._folders: dict[str, tuple[Path, ...]] = {f"--workdir {shown}": own}
        if self.checkpoints.resolve() != self.path.resolve():
            name = f"spec.checkpoint.storage.path: {checkpoints}" if checkpoints else f"{shown}/checkpoints"
            self._folders[name] = (self.checkpoints,)
        self._locks = ExitStack()

    def __enter__(self) -> Self:
        """Create the folders and lock them.

        Raises:
            WorkdirError: a folder cannot be used.
        """
        with ExitStack() as locks:
            for name, folders in self._folders.items():
                locks.enter_context(_locked(name, folders))
            self._locks = locks.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def write_status(self, status: TrainingJobStatus) -> None:
        """Replace status.json as a whole, so that a reader never sees half of it."""
        replace(self.status_file, json.dumps(status.to_dict(), indent=1).encode() + b"\n")

    def write_job(self, job: TrainingJob) -> None:
        """Replace job.json by what this run trains, the folder of its checkpoints in full. Errors are ignored.

        `trainmaster compare` and the list read it; the run does not need it.
        """
        document = job.model_dump(mode="json", by_alias=True, exclude_unset=True, include={"metadata", "spec"})
        storage = (document["spec"].get("checkpoint") or {}).get("storage")
        if isinstance(storage, dict) and storage.get("path"):
            storage["path"] = str(self.checkpoints)
        with contextlib.suppress(OSError):
            replace(self._job_file, json.dumps(document, indent=1).encode() + b"\n")

    def read_job(self) -> dict[str, Any]:
        """Return what `write_job` wrote; empty if an earlier version ran there, or it cannot be read."""
        try:
            document = _read(self._job_file)
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def read_status(self) -> TrainingJobStatus:
        """Return what an earlier run left; an empty status if there was none or it cannot be read."""
        try:
            return TrainingJobStatus.read(_read(self.status_file))
        except (OSError, ValueError):
            return TrainingJobStatus()

    def forget_result(self) -> None:
        """Remove the evaluation of an earlier run, so that it is not taken for one of this run.

        Raises:
            WorkdirError: it is there and cannot be removed.
        """
        try:
            self._result_file.unlink(missing_ok=True)
        except OSError as error:
            raise WorkdirError(
                f"{self._result_file}, of an earlier run, cannot be removed: {reason(error)}; choose another folder"
            ) from None

    def result(self) -> dict[str, Any]:
        """Return what the trainer evaluated at the end; empty if it evaluated nothing."""
        try:
            result = _read(self._result_file)
        except (OSError, ValueError):
            return {}
        return result if isinstance(result, dict) else {}

    def keep_log(self, source: Path, name: str) -> None:
        """Copy a log into this folder, if there is anything in it. Errors are ignored."""
        try:
            if source.stat().st_size:
                with source.open("rb") as text, os.fdopen(open_to_write(self.logs / name), "wb") as copy:
                    copy.truncate(0)
                    shutil.copyfileobj(text, copy)
        except OSError:
            pass  # the run does not need the log

    @property
    def _job_file(self) -> Path:
        return self.path / "job.json"

    @property
    def _result_file(self) -> Path:
        return self.checkpoints / "result.json"


def new_folder(name: str, home: Path) -> Path:
    """Create a new folder for a run without --workdir, so that it does not go on from another run by mistake.

    Raises:
        WorkdirError: none can be made.
    """
    base = f"{name}-{datetime.now(UTC).astimezone():%Y%m%d-%H%M%S}"
    try:
        make_folder(home)
        return next(folder for folder in _candidates(home / base) if _is_made(folder))
    except OSError as error:
        raise WorkdirError(f"{home}: {reason(error)}; name another folder by --workdir") from None


def _candidates(base: Path) -> Iterator[Path]:
    yield base
    yield from (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))


def _is_made(folder: Path) -> bool:
    """Create the folder, and return whether it is new: another run may begin in the same second."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True
