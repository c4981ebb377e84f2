"""Choose the GPUs of this machine that a local replica may use.

A replica with g devices runs g ranks; each takes the device of its LOCAL_RANK. Each replica sees its own devices only,
so that two replicas on one machine do not share any. If there are too few GPUs, all ranks train on the CPU.
"""

from collections.abc import Mapping
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.roles import ReplicaSpec

VISIBLE = "CUDA_VISIBLE_DEVICES"


def devices_here(environ: Mapping[str, str], folder: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the names of the GPUs that this shell may use, as CUDA_VISIBLE_DEVICES has them: indexes or UUIDs.

    `folder` has a file nvidia0, nvidia1, ... for each. Where CUDA_VISIBLE_DEVICES is set, only those that it names are
    meant: somebody else may use the others.
    """
    present = tuple(str(index) for index in range(len(list(folder.glob("nvidia[0-9]*")))))
    if VISIBLE not in environ or not present:
        return present
    return tuple(name.strip() for name in environ[VISIBLE].split(",") if name.strip() not in {"", "-1", "NoDevFiles"})


def device_environment(here: tuple[str, ...], spec: ReplicaSpec, index: int, spares: int = 0) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES of replica `index`; empty where there is no GPU. A spare holds devices too."""
    if not here:
        return {}
    mine = here[index * spec.gpus : (index + 1) * spec.gpus]
    return {VISIBLE: "" if short_of_devices(here, spec, spares) else ",".join(mine)}


def short_of_devices(here: tuple[str, ...], spec: ReplicaSpec, spares: int = 0) -> bool:
    """Return whether this machine has fewer GPUs than the replicas and spares of this spec ask for."""
    return (spec.replicas + spares) * spec.gpus > len(here)


def too_few(job: TrainingJob, here: tuple[str, ...]) -> str | None:
    """Return a sentence where this machine has GPUs, but fewer than the workers ask for; else None."""
    workers = job.spec.workers
    wanted = (workers.replicas + job.spec.spares) * workers.gpus
    if not here or wanted <= len(here):
        return None
    return (
        f"spec.workers.gpus: the job asks for {wanted} GPUs and this machine has {len(here)} for it, so all ranks "
        f"train on the CPU. Lower workers.replicas or workers.gpus to train on GPUs."
    )
