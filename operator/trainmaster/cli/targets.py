"""Find what a command is about: a run on this machine, or a job on a cluster, by the same words.

A name is a run's if it is a folder of a run, or of one in .trainmaster/; else it is a job's. With --namespace or
--context it is always a job's.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.local.workdir import LOCK, LOGS, RUNS, Workdir

if TYPE_CHECKING:
    from trainmaster.cluster.access import AccessError  # it loads the Kubernetes client

_RUN = r"(-\d{8}-\d{6}(-\d+)?)?"  # after a job's name, in the name of the folder of a run (local/workdir.py)

_DIED = "The run was ended from outside. Another run in the same folder goes on from what it has saved."

Document = dict[str, Any]


def phase_of(document: Document) -> str:
    """Return the phase as the list shows it, which is Stopped for a run that has ended before its job."""
    status = document.get("status")
    return str((isinstance(status, dict) and status.get("phase")) or TrainingJobStatus().phase)


@dataclass(frozen=True)
class LocalRun:
    """The folder of a run on this machine."""

    folder: Path

    @property
    def status(self) -> TrainingJobStatus:
        """Return the status that the run has written last."""
        return Workdir(self.folder).read_status()

    @property
    def alive(self) -> bool:
        """Return whether the run goes on: it holds a lock on its folder."""
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """Return the process that holds the lock on the folder; None where none does."""
        try:
            inode = (self.folder / LOCK).lstat().st_ino
            locks = Path("/proc/locks").read_text().splitlines()
        except OSError:
            return None
        held = [fields for fields in map(str.split, locks) if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}")]
        return next((pid for pid in (int(fields[4]) for fields in held) if _is_ours(pid)), None)

    @property
    def logs(self) -> Path:
        """Return the folder with the logs of the agents."""
        return self.folder / LOGS

    def document(self) -> Document:
        """Return the run as a TrainingJob would be shown."""
        place = Workdir(self.folder)
        status, spec = place.read_status(), place.read_job().get("spec")
        began = (status.goodput.since if status.goodput else None) or status.start_time
        metadata = {"name": str(self.folder), **({"creationTimestamp": began.isoformat()} if began else {})}
        known = {"spec": spec} if isinstance(spec, dict) else {}
        return {"kind": "Run", "metadata": metadata, **known, "status": {**status.to_dict(), **self.correction(status)}}

    def correction(self, status: TrainingJobStatus) -> Document:
        """Return what is to be said instead where the run has ended before its job: its status may say Running."""
        if status.finished or self.alive:
            return {}
        return {"phase": "Stopped", "message": status.message if status.phase == Phase.SUSPENDED else _DIED}


def _is_ours(pid: int) -> bool:
    """Return whether a process is a `trainmaster`: a file on another disk may have the same number."""
    try:
        return b"trainmaster" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def local_runs() -> Iterator[LocalRun]:
    """Yield the runs in .trainmaster/, oldest first."""
    if RUNS.is_dir():
        yield from (LocalRun(folder) for folder in sorted(RUNS.iterdir()) if (folder / "status.json").is_file())


def runs_of_job(name: str) -> list[Path]:
    """Return the folders of the job's runs in .trainmaster/, newest first, of no job whose name only begins so."""
    entries = RUNS.iterdir() if RUNS.is_dir() else ()
    found = (one for one in entries if re.fullmatch(re.escape(name) + _RUN, one.name))
    return sorted(found, key=lambda folder: folder.stat().st_mtime, reverse=True)


def not_here(name: str, options: argparse.Namespace) -> str:
    """Return how a sentence begins on what a cluster says of a name that no run here has."""
    if options.context or options.namespace:
        return ""
    what, runs = "no run here", runs_of_job(name) if name else []
    if runs:
        what = f"a job whose newest run here is {runs[0]}"
    elif name and Path(name).exists():
        what = "a folder without a run's status.json" if Path(name).is_dir() else "a file, and not the folder of a run"
    return f"{name or 'an empty word'} is {what}, and of a cluster: "


def answer(error: "AccessError", options: argparse.Namespace) -> str:
    """Return what a cluster says of options.name; where none has answered, also that no run here has this name."""
    return str(error) if error.status else f"{not_here(options.name, options)}{error}"


def find_local(name: str, options: argparse.Namespace) -> LocalRun | None:
    """Return the run on this machine that is meant; None where it is a job on a cluster."""
    if options.namespace or options.context or not name:  # as a path, an empty word would be the present folder
        return None
    for folder in (Path(name), RUNS / name):
        if (folder / "status.json").is_file() or (folder / LOCK).is_file():
            return LocalRun(folder)
    return None
