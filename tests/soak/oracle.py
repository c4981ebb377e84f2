"""What must be true of a life when it is over, whatever has died in it."""

from __future__ import annotations

import collections
import contextlib
import io
import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trainmaster.cli.audit import audit

from tests.soak.drive import Lived
from tests.soak.lives import AGENT, COMMAND, STEPS

ACCOUNTS = ("waiting", "starting", "training", "saving", "recovering", "lostWork")
SLACK_SECONDS = 0.1
"""By how much the accounts may miss the wall time: each is written with three digits."""


@dataclass(frozen=True)
class Calm:
    """What an undisturbed run of the same job ended with. `asked`: how often each rank computed a loss."""

    sha256: str
    losses: dict[int, float] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Calm:
        """Return it from its JSON, whose keys are text."""
        by_number = ({int(key): value for key, value in plain[part].items()} for part in ("losses", "asked"))
        return cls(plain["sha256"], *by_number)


def calm_of(lived: Lived) -> Calm:
    """Return what an undisturbed life ended with."""
    if lived.life.is_script:
        return Calm(_model_of_script(lived))
    return Calm(lived.command.status["checkpoint"]["sha256"], losses(lived.command.workdir), _asked(lived))


def problems(lived: Lived, calm: Calm) -> list[str]:
    """Return a sentence for each thing that is not as it must be."""
    status = lived.command.status
    if lived.code != 0 or status["phase"] != "Succeeded":
        return [f"It ended with {lived.code} in the phase {status['phase']}: {status.get('message')}"]
    found = _ledger(status) + _accounts(lived, status)
    if lived.life.is_script:
        return found if _model_of_script(lived) == calm.sha256 else [*found, "The model is not that of the calm run."]
    return found + _model(lived, calm) + _lost_steps(lived, calm) + _marks(lived)


def _model_of_script(lived: Lived) -> str:
    return (lived.command.folder / "model.sha256").read_text()


def _model(lived: Lived, calm: Calm) -> list[str]:
    found = []
    workdir, checkpoint = lived.command.workdir, lived.command.status.get("checkpoint", {})
    manifest = json.loads((workdir / "checkpoints" / f"step-{STEPS:08}" / "manifest.json").read_text())
    if (checkpoint.get("step"), checkpoint.get("sha256")) != (STEPS, manifest["model_sha256"]):
        found.append(f"status.checkpoint is not the final model but that of step {checkpoint.get('step')}.")
    if lived.life.is_exact:
        if manifest["model_sha256"] != calm.sha256:
            found.append("The model is not that of the calm run.")
        different = [step for step, loss in losses(workdir).items() if calm.losses.get(step) != loss]
        if different:
            found.append(f"The losses of {len(different)} steps differ from the calm run's, first step {different[0]}.")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = audit(str(workdir))
    if code != 0:
        found.append(f"trainmaster audit found a contradiction: {said.getvalue().strip()}")
    return found


def _marks(lived: Lived) -> list[str]:
    """Return the lines over fewer samples that there should not be: only a lost replica takes losses along."""
    marked = [row["step"] for row in _rows(lived.command.workdir) if "samples" in row]
    if not marked or not lived.life.is_exact or any(fault.victim == AGENT for fault in lived.life.faults):
        return []
    return [f"The losses of steps {marked} are over fewer samples, though no replica was lost."]


def _ledger(status: dict[str, Any]) -> list[str]:
    found = []
    for line in status.get("restarts", []):
        if line.get("secondsLost") is None:
            found.append(f"The ledger does not know what {line['class']} at step {line.get('step')} cost.")
        if line["decision"] != "Restart":
            found.append(f"The ledger has a line with the decision {line['decision']}: {line['why']}")
    return found


def _lost_steps(lived: Lived, calm: Calm) -> list[str]:
    """Return what the ledger tells of lost steps beyond those that were computed twice.

    Where a rank computes one loss for each step, what it has computed more than the calm one was lost.
    """
    ones = [rank for rank, count in calm.asked.items() if count == STEPS]
    if not ones or not lived.life.is_exact:
        return []
    asked = _asked(lived)
    twice = max(asked.get(rank, 0) for rank in ones) - STEPS
    told = sum(line.get("stepsLost") or 0 for line in lived.command.status.get("restarts", []))
    return [f"The ledger tells of {told} lost steps; {twice} were computed again."] if told > twice else []


def _accounts(lived: Lived, status: dict[str, Any]) -> list[str]:
    """Return where the accounts of goodput do not add up to the wall time, but for that between two commands."""
    goodput = status["goodput"]
    booked = sum(goodput[account] for account in ACCOUNTS)
    began, ended = (datetime.fromisoformat(goodput[end]) for end in ("since", "time"))
    wall = (ended - began).total_seconds()
    is_less = booked < wall - SLACK_SECONDS and not any(fault.victim == COMMAND for fault in lived.life.faults)
    if is_less or booked > wall + SLACK_SECONDS:
        return [f"The accounts of goodput add up to {booked:.3f} s of {wall:.3f} s: {goodput}"]
    return []


def _asked(lived: Lived) -> dict[int, int]:
    """Return how often each rank has computed a loss, in all its processes."""
    asked: collections.Counter[int] = collections.Counter()
    for note in lived.command.folder.glob("ranks/*"):
        rank, _, losses_asked = note.read_text().partition(" ")
        if rank:  # else it was killed before it could write it
            asked[int(rank)] += len(losses_asked)
    return dict(asked)


def losses(workdir: Path) -> dict[int, float]:
    """Return the loss of each step, but for lines over fewer samples: a lost pod took the others along."""
    return {row["step"]: row["loss"] for row in _rows(workdir) if "samples" not in row}


def _rows(workdir: Path) -> list[dict[str, Any]]:
    """Return the lines that have a loss."""
    rows = map(json.loads, (workdir / "checkpoints" / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if "loss" in row]
