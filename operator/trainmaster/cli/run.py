"""Run `trainmaster run JOB.yaml`: train on this machine, show the progress, and tell how it ended.

The warm parent needs the longest time (it imports torch), so it starts first, and other slow imports come after it.
"""

import asyncio
import contextlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.api.problem import reason
from trainmaster.cli.interrupts import Interrupts, ignore
from trainmaster.cli.process_output import ProcessOutputs
from trainmaster.cli.terminal import complain
from trainmaster.cli.warm_parent import LocalWarmParent
from trainmaster.local.scratch import Scratch

if TYPE_CHECKING:
    from trainmaster.api.job import TrainingJob
    from trainmaster.cli.guarded import GuardedView
    from trainmaster.cli.views import View
    from trainmaster.local.fault_option import Armed
    from trainmaster.local.local_run import RunOutcome, Session
    from trainmaster.local.variables import Site
    from trainmaster.local.workdir import Workdir

EXIT_SUCCEEDED, EXIT_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 0, 1, 2, 130
# /proc, pidfd_open, prctl and memfd_create are how processes are watched, and how none is left behind.
NOT_LINUX = """trainmaster run needs Linux: it watches and ends processes by means that other systems do not have.
Use WSL2 on Windows. Elsewhere, a container (the image is built by docker build -f images/trainer/Dockerfile .):
docker run --rm -it --shm-size=1g -v "$PWD:/work" -w /work --entrypoint trainmaster trainmaster/trainer:dev \\
  run JOB.yaml"""


def run(job_file: str, workdir: str | None, output: str, faults: list[str], changes: Sequence[str] = ()) -> int:
    """Run the command, and return its exit code. `changes` are those of --set."""
    path = Path(job_file)
    try:
        if job_file != "-":
            path.stat()
    except OSError as error:
        return _refuse(f"{path}: {reason(error)}")
    if sys.platform != "linux":
        return _refuse(NOT_LINUX)
    if importlib.util.find_spec("torch") is None:
        return _refuse("trainmaster run needs PyTorch: `make setup`, or pip install '.[trainer]', in a checkout")
    try:
        with (
            Interrupts() as interrupts,
            ProcessOutputs() as process_outputs,
            Scratch() as scratch,
            LocalWarmParent(scratch, job_file) as warm,
        ):
            code = Run(path, workdir, output, faults, interrupts, process_outputs, scratch, warm, changes).run()
            ignore()
            return code
    except OSError as error:  # no more processes or files, or no room for the scratch folder
        if error.errno is None:  # guarded.py raises it for a reader that has gone
            raise
        return _refuse(f"trainmaster run: {f'{error.filename}: ' if error.filename else ''}{reason(error)}")
    except KeyboardInterrupt:
        ignore()
        complain("Stopped before training began.")
        return EXIT_INTERRUPTED


def _refuse(message: str) -> int:
    complain(*message.split("\n"))
    return EXIT_INVALID


@dataclass(frozen=True)
class Run:
    """Hold one call of the command, with what was started for it."""

    path: Path
    workdir: str | None
    output: str
    faults: list[str]
    interrupts: Interrupts
    process_outputs: ProcessOutputs
    scratch: Scratch
    warm: LocalWarmParent
    changes: Sequence[str] = ()

    def run(self) -> int:
        """Check the file, then train, and return the exit code."""
        # Signals wait for the end of imports: native code that imports (pydantic's) makes a crash of KeyboardInterrupt.
        from trainmaster.api.supported import not_yet_supported
        from trainmaster.cli.check import load_or_report
        from trainmaster.local.fault_option import Armed, FaultError, parse
        from trainmaster.local.workdir import RUNS, Workdir, WorkdirError, new_folder

        with self.interrupts.raised():
            job = load_or_report(self.path, changes=self.changes)  # prints the same messages as `trainmaster check`
            if job is None:
                return EXIT_INVALID
            later = [f"{self.path}: {field}: {why}" for field, why in not_yet_supported(job.spec)]
            if later:
                return _refuse("\n".join(later))
            try:
                armed = Armed.create(parse(self.faults, job), self.scratch.path / "faults")
            except FaultError as error:
                return _refuse(f"trainmaster run: {error}")
            storage = job.spec.checkpoint.storage
            # A relative path starts at the YAML's folder.
            kept = self.path.absolute().parent / storage.path if storage and storage.path else None
        try:
            folder = Path(self.workdir) if self.workdir else new_folder(job.name, RUNS)
            with Workdir(folder, kept) as place:
                return self._train(job, place, armed)
        except WorkdirError as error:
            return _refuse(f"trainmaster run: {error}")

    def _train(self, job: "TrainingJob", place: "Workdir", armed: "Armed") -> int:
        from trainmaster.cli.guarded import GuardedView
        from trainmaster.cli.logs import logging_to
        from trainmaster.local.devices import devices_here, too_few
        from trainmaster.local.local_run import Session

        view = GuardedView(self._view(job, place.shown), self.process_outputs.stdout, self.interrupts)
        site = self._site(place, armed)
        with self.interrupts.raised():
            session = Session(job, place, site, view)
            if warning := too_few(job, devices_here(os.environ)):
                complain(warning)
            place.write_job(job)
        with logging_to(place.logs / "trainmaster.log", view), view:
            outcome = asyncio.run(self._until_end(session, view))
            view.end(outcome, place.result())
        place.keep_log(self.scratch.warm_log, "warm-parent.log")
        return self._exit_code(outcome, place)

    async def _until_end(self, session: "Session", view: "GuardedView") -> "RunOutcome":
        """Train until the end.

        The first Ctrl-C, or a reader that has gone, lets the ranks save; the second Ctrl-C ends them.
        """
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if not session.stopping:  # the second time nothing is shown, and the ranks are ended at once
                view.stopping()
            session.stop()

        def answer() -> None:
            loop.call_soon_threadsafe(stop)

        with self.interrupts.answering(answer):
            view.when_broken(self.interrupts.hung_up)
            return await session.run()

    def _view(self, job: "TrainingJob", folder: Path) -> "View":
        from trainmaster.cli import views

        if self.output == "json":
            return views.JsonView()
        if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
            return views.PlainView(job, folder)
        from trainmaster.cli.live import LiveView

        return LiveView(job, folder)

    def _site(self, place: "Workdir", armed: "Armed") -> "Site":
        from trainmaster.local.variables import Site

        return Site(
            folder=self.path.absolute().parent,
            checkpoints=place.checkpoints,
            scratch=self.scratch.path,
            warm_socket=self.warm.socket,
            token_file=self.scratch.path / "token",
            armed=armed,
        )

    def _exit_code(self, outcome: "RunOutcome", place: "Workdir") -> int:
        if outcome.stopped:
            changed = [word for change in self.changes for word in ("--set", change)]
            again = shlex.join(["trainmaster", "run", str(self.path), *changed, "--workdir", str(place.shown)])
            with contextlib.suppress(OSError):  # without the line, the exit code tells it
                complain(f"Go on with: {again}")
            return EXIT_INTERRUPTED
        return EXIT_SUCCEEDED if outcome.status.phase == "Succeeded" else EXIT_FAILED
