"""Look into a job's command and its script for what does not fit the job, and say so before it runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.roles import NVIDIA_GPU
from trainmaster.local.devices import short_of_devices
from trainmaster.wire import launchers, torchrun
from trainmaster.wire.cleared_environment import not_counted
from trainmaster.wire.files import read_bounded
from trainmaster.wire.frameworks import FRAMEWORKS, TORCH, is_led
from trainmaster.wire.launcher_line import is_python
from trainmaster.wire.script_imports import named_by, of_script, other_frameworks
from trainmaster.wire.spawning import EACH_STARTS, spawns_always

_MOST_BYTES = 1 << 20
_SERVES = re.compile(r"\bdistribute\.Server\(")


def hint_of(job: TrainingJob, folder: Path) -> str:
    """Return a hint where the script imports another framework than the job names, or serves where nobody leads.

    It is empty where nothing is to be said, also of a script that is in the image.
    """
    script, path, text = _script(job, folder)
    training, strategy = job.spec.training, job.spec.strategy.type
    if training.framework == "TensorFlow" and _SERVES.search(text) and not is_led(training.framework, strategy):
        return (
            f"{script} starts a tf.distribute.Server, which serves for ever, and under {strategy} no process is the "
            "chief whose end is the job's: use strategy ParameterServer, or set activeDeadlineSeconds"
        )
    return _other_framework(job, script, path) if text else ""


def spawning_hint_of(job: TrainingJob, folder: Path) -> str:
    """Return a hint where each of several ranks would start training processes of its own; else an empty text."""
    script, _, text = _script(job, folder)
    ranks = job.spec.world_size if job.spec.training.framework == TORCH else 1
    spawns = spawns_always(text) if ranks > 1 else ""
    return f"{script} calls {spawns}: {EACH_STARTS.format(ranks)}" if spawns else ""


def counting_hint_of(job: TrainingJob) -> str:
    """Return a hint where no steps of the command's programs can be counted; else an empty text."""
    training = job.spec.training
    words = training.command or ("",)
    # Options of Python are obeyed by a rank that runs the script itself, and counts.
    told = training.framework == TORCH and not training.progress and not is_python(words[0])
    return not_counted(words) if told else ""


def devices_hint_of(job: TrainingJob, here: tuple[str, ...]) -> str:
    """Return a hint where torchrun is to count GPUs of which the workers get none; else an empty text.

    `here` are the GPUs of this machine.
    """
    spec, launch = job.spec, launchers.launched(job.spec.training.command or ("",))
    if launch is None or launch.per_node not in ("auto", "gpu"):
        return ""
    counts = f"{launch.size_option}={launch.per_node} counts GPUs, and "
    end = f"would fail at its start; replace {launch.per_node} by a number"
    wanted = spec.workers.gpus * (spec.workers.replicas + spec.spares)
    if not wanted:
        counts += "spec.workers.gpus asks for none"
        end = f"the job {end}, or set spec.workers.gpus"
    elif spec.workers.device_resource == NVIDIA_GPU and short_of_devices(here, spec.workers, spec.spares):
        counts += f"this machine has {len(here)} of the {wanted} that the job asks for"
        end = f"a run here {end}"
    else:
        return ""
    if launch.per_node == "gpu":
        return f"{counts}: {end}"
    try:
        torchrun.check_size(launch, spec.workers.replicas, spec.ranks_each, os.cpu_count())
    except torchrun.CommandError:
        return f"{counts}, so that it counts cores ({os.cpu_count()} here): {end}"
    return ""


def _script(job: TrainingJob, folder: Path) -> tuple[str, Path, str]:
    """Return the script that a command names, its path and its text, which is empty where it is not here."""
    training = job.spec.training
    script = next((word for word in training.command or () if word.endswith(".py")), "")
    path = folder / (training.working_directory or "") / script
    try:
        return script, path, read_bounded(path, _MOST_BYTES).decode(errors="replace") if script else ""
    except OSError:
        return script, path, ""


def _other_framework(job: TrainingJob, script: str, path: Path) -> str:
    framework = job.spec.training.framework
    imported = of_script([path], [str(path.parent)]).possible
    found = () if imported.intersection(FRAMEWORKS[framework].imports) else named_by(imported)
    if not found:
        return ""
    told = f"{script} imports {' and '.join(found)} and not {framework}: set it to {found[0]}"
    if job.spec.world_size > 1 and other_frameworks([path], [str(path.parent)], framework):
        return f"{told}; as it is, the job would fail at its start"
    return f"{told} if that is what it trains by"
