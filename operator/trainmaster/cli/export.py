"""Run `trainmaster export NAME|DIR -o FILE`: write a trained model into one file that plain torch reads.

The trainer does it, in a process of its own, as the control side never imports torch. Here is only found where the
checkpoints are: in a folder, in the newest local run of that name, or where a job on a cluster keeps them.
"""

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.cli.targets import runs_of_job
from trainmaster.cli.terminal import complain
from trainmaster.local.workdir import RUNS

EXIT_INVALID = 2
_OF_TORCH = (".pt", ".pth", ".bin", ".ckpt")  # endings that people give to what torch.load reads
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class NotFoundError(Exception):
    """The checkpoints cannot be reached from here. The text names the cure."""


@dataclass(frozen=True)
class ExportSource:
    """A source is a folder of checkpoints or its URL."""

    place: str
    endpoint: str | None = None


@dataclass(frozen=True)
class ExportRequest:
    """Hold what the command line asks for."""

    what: str
    output: str
    form: str | None  # None: as the file's name ends
    best: bool = False
    namespace: str | None = None
    context: str | None = None
    ema: bool = False


def export(wanted: ExportRequest) -> int:
    """Run the command, and return its exit code."""
    if importlib.util.find_spec("torch") is None:
        complain("trainmaster export needs PyTorch: `make setup`, or pip install '.[trainer]', in a checkout")
        return EXIT_INVALID
    try:
        if wanted.output == "-" or wanted.output.endswith("/") or not Path(wanted.output).name:
            raise NotFoundError(
                f"--output {wanted.output}: a model is written into a file. Name one, such as model.safetensors"
            )
        source = find(wanted)
    except NotFoundError as error:
        complain(f"trainmaster export: {error}")
        return EXIT_INVALID
    is_torch = wanted.output.lower().endswith(_OF_TORCH)
    form = wanted.form or ("torch" if is_torch else "safetensors")
    command = [sys.executable, "-P", "-m", "trainmaster_trainer.export_model", source.place, "--output", wanted.output]
    command += ["--format", form, *(["--best"] if wanted.best else []), *(["--ema"] if wanted.ema else [])]
    command += ["--endpoint", source.endpoint] if source.endpoint else []
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def find(wanted: ExportRequest) -> ExportSource:
    """Return where the checkpoints are.

    Raises:
        NotFoundError: they cannot be reached.
    """
    if "://" in wanted.what:
        return ExportSource(wanted.what)
    path = Path(wanted.what)
    if path.is_dir():
        return ExportSource(str(_home(path)))
    saved = next((run for run in runs_of_job(wanted.what) if any(_home(run).glob("step-*"))), None)
    if saved is not None:
        return ExportSource(str(_home(saved)))
    if not _NAME.fullmatch(wanted.what):
        raise NotFoundError(f"{wanted.what}: there is no such folder. Name the --workdir of a run, or a job.")
    return _on_cluster(wanted)


def _home(folder: Path) -> Path:
    inner = folder / "checkpoints"
    return inner if inner.is_dir() else folder


def _on_cluster(wanted: ExportRequest) -> ExportSource:
    """Return where a job on a cluster keeps its checkpoints, if that can be reached from here."""
    from trainmaster.cluster.access import Access, AccessError  # noqa: PLC0415 (it loads the Kubernetes client)

    nothing = f"no run of {wanted.what} with a checkpoint lies in {RUNS}/ here"
    try:
        document = Access(wanted.context, wanted.namespace).job(wanted.what)
        job = TrainingJob.parse(document)
    except AccessError as error:
        raise NotFoundError(f"{nothing}, and on the cluster: {error}.") from None
    except ValueError:
        raise NotFoundError(f"{nothing}, and the job of that name on the cluster cannot be read.") from None
    return source_of(job)


_AFTER_THE_END = " The job's own pods mount it while they run; any other pod may, as that of examples/fetch.yaml does."


def source_of(job: TrainingJob) -> ExportSource:
    """Return where a job on a cluster keeps its checkpoints.

    Raises:
        NotFoundError: only pods reach it, or nobody does.
    """
    storage = job.spec.checkpoint.storage
    own = f"{job.name}-{job.uid[:8]}"
    if storage is None:
        raise NotFoundError(
            f"{job.name} has no spec.checkpoint.storage, so its model is in its pods' own folders and goes with them. "
            "While a worker's pod runs, copy it: kubectl cp POD:/checkpoints DIR, then trainmaster export DIR."
        )
    if storage.object_store:
        return ExportSource(f"{storage.object_store.url.rstrip('/')}/{own}", storage.object_store.endpoint)
    if storage.path and Path(storage.path).is_dir():
        return ExportSource(storage.path)
    volume = storage.persistent_volume_claim
    claim = volume.claim_name if volume else ""
    where = storage.path or f"/checkpoints/{own} on the claim {claim}"
    raise NotFoundError(
        f"the checkpoints of {job.name} are in {where}, which is not mounted here. Copy them out of a pod that mounts "
        f"it (kubectl cp POD:{storage.path or f'/checkpoints/{own}'} DIR), then trainmaster export DIR.{_AFTER_THE_END}"
    )
