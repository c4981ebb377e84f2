"""Look into a job's script for what shows that it does not fit the job. It is a hint, and no more."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.wire.files import read_bounded
from trainmaster.wire.frameworks import FRAMEWORKS, is_led

_MOST_BYTES = 1 << 20
_IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
_SERVES = re.compile(r"\bdistribute\.Server\(")


def hint_of(job: TrainingJob, folder: Path) -> str:
    """Return a hint where the script imports another framework than the job names, or serves where nobody leads.

    It is empty where nothing is to be said, also of a script that is in the image.
    """
    training = job.spec.training
    script = next((word for word in training.command or () if word.endswith(".py")), None)
    if script is None:
        return ""
    try:
        text = read_bounded(folder / (training.working_directory or "") / script, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    strategy = job.spec.strategy.type
    if training.framework == "TensorFlow" and _SERVES.search(text) and not is_led(training.framework, strategy):
        return (
            f"{script} starts a tf.distribute.Server, which serves for ever, and under {strategy} no process is the "
            "chief whose end is the job's: use strategy ParameterServer, or set activeDeadlineSeconds"
        )
    return _other_framework(script, set(_IMPORT.findall(text)), training.framework)


def _other_framework(script: str, imported: set[str], framework: str) -> str:
    if imported.intersection(FRAMEWORKS[framework].imports):
        return ""
    found = [name for name, traits in FRAMEWORKS.items() if imported.intersection(traits.imports)]
    if not found:
        return ""
    names = " and ".join(found)
    return f"{script} imports {names} and not {framework}: set it to {found[0]} if that is what it trains by"
