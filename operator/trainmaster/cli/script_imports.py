"""Look into a job's script for imports that show for which framework it is written. It is a hint, and no more."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.wire.files import read_bounded
from trainmaster.wire.frameworks import FRAMEWORKS

_MOST_BYTES = 1 << 20
_IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)


def other_framework(job: TrainingJob, folder: Path) -> str:
    """Return a hint where the script imports another framework and not the one that the job names; else empty."""
    training = job.spec.training
    script = next((word for word in training.command or () if word.endswith(".py")), None)
    if script is None:
        return ""
    try:
        text = read_bounded(folder / (training.working_directory or "") / script, _MOST_BYTES)
    except OSError:
        return ""  # it is in the image
    imported = set(_IMPORT.findall(text.decode(errors="replace")))
    if imported.intersection(FRAMEWORKS[training.framework].imports):
        return ""
    found = [name for name, traits in FRAMEWORKS.items() if imported.intersection(traits.imports)]
    if not found:
        return ""
    names = " and ".join(found)
    return f"{script} imports {names} and not {training.framework}: set it to {found[0]} if that is what it trains by"
