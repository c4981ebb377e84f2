"""`trainmaster run JOB.yaml`: train on this machine, show how it goes, say how it ended."""

import asyncio
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.cli.warm import WarmParent

if TYPE_CHECKING:
    from trainmaster.api.job import TrainingJob
    from trainmaster.api.status import TrainingJobStatus
    from trainmaster.cli.views import View
    from trainmaster.local.session import Session
    from trainmaster.local.workdir import Workdir

EXIT_SUCCEEDED, EXIT_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 0, 1, 2, 130


def run(job_file: str, workdir: str | None, output: str) -> int:
    """The command. Returns its exit code."""
    path = Path(job_file)
    if not path.is_file():
        print(f"{path}: no such file", file=sys.stderr)
        return EXIT_INVALID
    with WarmParent() as warm:  # before the imports below: it has the longest way to go
        return _check_and_train(path, workdir, output, warm)


def _check_and_train(path: Path, workdir: str | None, output: str, warm: WarmParent) -> int:
    from trainmaster.api.document import load_file
    from trainmaster.cli.check import check
    from trainmaster.local.workdir import InUseError, Workdir

    job = load_file(path)
    if isinstance(job, list):
        return check([str(path)], output)  # the same words as `trainmaster check`

    folder = Path(workdir) if workdir else _new_folder(job.name)
    try:
        with Workdir(folder) as place:
            return _train(path, job, place, output, warm)
    except (InUseError, OSError) as error:
        print(f"trainmaster run: {error}", file=sys.stderr)
        return EXIT_FAILED


def _new_folder(name: str) -> Path:
    """Every run without --workdir gets a folder of its own, so that none goes on from another by surprise."""
    return Path(".trainmaster") / f"{name}-{datetime.now(UTC).astimezone():%Y%m%d-%H%M%S}"


def _train(path: Path, job: "TrainingJob", place: "Workdir", output: str, warm: WarmParent) -> int:
    from trainmaster.local.session import Listeners, Session

    view = _view(job, place.path, output)
    listeners = Listeners(view.event, view.output, view.progress)
    session = Session(job, path.absolute().parent, place, listeners, warm.socket)
    with view:
        status, interrupted = asyncio.run(_until_stopped(session))
        view.end(status, place.result())
    if interrupted:
        print(f"Stopped. Go on with: trainmaster run {path} --workdir {place.path}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_SUCCEEDED if status.phase == "Succeeded" else EXIT_FAILED


def _view(job: "TrainingJob", folder: Path, output: str) -> "View":
    from trainmaster.cli import views

    if output == "json":
        return views.JsonView()
    if not sys.stdout.isatty():
        return views.PlainView(job, folder)
    from trainmaster.cli.live import LiveView

    return LiveView(job, folder)


async def _until_stopped(session: "Session") -> "tuple[TrainingJobStatus, bool]":
    """The final status, and whether somebody stopped us. The first Ctrl-C lets the ranks save."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    status = await session.run(stop)
    return status, stop.is_set() and not status.finished
