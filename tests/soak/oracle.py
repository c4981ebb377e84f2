"""What must be true of a life when it is over, whatever has died in it."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.cli.audit import audit

from tests.soak.drive import Lived
from tests.soak.lives import STEPS


@dataclass(frozen=True)
class Calm:
    """What an undisturbed run of the same job ended with."""

    sha256: str
    losses: dict[int, float]


def calm_of(lived: Lived) -> Calm:
    """Return what an undisturbed life ended with."""
    return Calm(lived.command.status["checkpoint"]["sha256"], losses(lived.command.workdir))


def problems(lived: Lived, calm: Calm) -> list[str]:
    """Return a sentence for each thing that is not as it must be."""
    status = lived.command.status
    if lived.code != 0 or status["phase"] != "Succeeded":
        return [f"It ended with {lived.code} in the phase {status['phase']}: {status.get('message')}"]
    found = []
    checkpoint = status.get("checkpoint", {})
    if checkpoint.get("step") != STEPS:
        found.append(f"status.checkpoint names step {checkpoint.get('step')}, not the last one.")
    if lived.life.is_exact:
        if checkpoint.get("sha256") != calm.sha256:
            found.append("The model is not that of the calm run.")
        different = [step for step, loss in losses(lived.command.workdir).items() if calm.losses.get(step) != loss]
        if different:
            found.append(f"The losses of {len(different)} steps differ from the calm run's, first step {different[0]}.")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = audit(str(lived.command.workdir))
    if code != 0:
        found.append(f"trainmaster audit found a contradiction: {said.getvalue().strip()}")
    return found + _ledger(status)


def _ledger(status: dict[str, Any]) -> list[str]:
    found = []
    for line in status.get("restarts", []):
        if line["decision"] == "Restart" and line.get("secondsLost") is None:
            found.append(f"The ledger does not know what {line['class']} at step {line.get('step')} cost.")
        if (line.get("stepsLost") or 0) > STEPS:
            found.append(f"The ledger tells of {line['stepsLost']} lost steps; there were {STEPS}.")
        if line["decision"] == "Stop":
            found.append(f"The ledger has a stop: {line['why']}")
    return found


def losses(workdir: Path) -> dict[int, float]:
    """Return the loss of each step, but for lines over fewer samples: a lost pod took the others along."""
    rows = map(json.loads, (workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines())
    return {row["step"]: row["loss"] for row in rows if "loss" in row and "samples" not in row}
