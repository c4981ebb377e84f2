"""Parse `trainmaster run --fault kill:worker/1@step=50`, hand faults to the ranks, and report those that came.

The rank concerned carries out a fault itself, see `wire.faults`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core.states.actions import PostEvent
from trainmaster.wire import faults, names
from trainmaster.wire.faults import Fault

FORM = "KIND:ROLE/INDEX@step=N, as in kill:worker/1@step=50, or corrupt-checkpoint@step=N"
_FAULT = re.compile(r"(?P<kind>[^:@]*)(:(?P<role>[^/@]*)(/(?P<index>[^@]*))?)?@step=(?P<step>.*)")
# The rank notes the time of a fault just before it comes, by the same clock as the ledger's.
_SLACK = timedelta(seconds=1)
_ENDING = (faults.KILL, faults.STOP, faults.OOM)
_WORDS = {
    faults.KILL: "SIGKILL to {who}",
    faults.STOP: "SIGSTOP to {who}",
    faults.OOM: "{who} takes all memory that it is allowed",
    faults.SLOW: "{who} takes three times as long for each step from now on",
    faults.CORRUPT_CHECKPOINT: "one byte of the checkpoint of step {result} was changed",
}
_NO_CHECKPOINT = "there was no checkpoint to change"


class FaultError(Exception):
    """A --fault is not possible. The text says what is wrong and what is possible."""


def parse(texts: list[str], job: TrainingJob) -> tuple[Fault, ...]:
    """Return the faults that `texts` ask for.

    Raises:
        FaultError: one of them is not understood, or not possible in this job.
    """
    return tuple(_parse(text, number, job) for number, text in enumerate(texts))


def _parse(text: str, number: int, job: TrainingJob) -> Fault:
    found = _FAULT.fullmatch(text)
    kind = found["kind"] if found else re.split("[:@]", text)[0]
    if kind not in faults.KINDS:
        raise FaultError(f"--fault {text}: {kind!r} is no fault; it is one of {', '.join(faults.KINDS)}")
    if found is None:
        raise FaultError(f"--fault {text}: write {FORM}")
    step = _step(text, found["step"], job)
    if kind == faults.CORRUPT_CHECKPOINT:
        if found["role"] is not None:
            raise FaultError(f"--fault {text}: a checkpoint belongs to all replicas; write {kind}@step={step}")
        storage = job.spec.checkpoint.storage
        if storage and storage.object_store:
            raise FaultError(f"--fault {text}: it changes a file, and this job's checkpoints are in an object store")
        return Fault(kind, step, number=number)
    role, index = _replica(text, found["role"], found["index"], job)
    return Fault(kind, step, role, index, number)


def _step(text: str, step: str, job: TrainingJob) -> int:
    if job.spec.training.steps is None and re.fullmatch("[0-9]{1,18}", step) and int(step):
        return int(step)  # nobody knows here how many it takes
    most = job.spec.training.steps or 0
    if not re.fullmatch("[0-9]{1,18}", step) or not 1 <= int(step) <= most:
        raise FaultError(f"--fault {text}: step={step} is no step of this job; it has 1 to {most}")
    return int(step)


def _replica(text: str, role: str | None, index: str | None, job: TrainingJob) -> tuple[str, int]:
    roles = job.spec.roles
    if role not in roles or index is None:
        there = ", ".join(f"{name}/0 to {name}/{spec.replicas - 1}" for name, spec in roles.items())
        raise FaultError(f"--fault {text}: name a replica that the job has: {there}")
    most = roles[role].replicas - 1
    if not re.fullmatch("[0-9]{1,9}", index) or int(index) > most:
        raise FaultError(f"--fault {text}: the job has no {role}/{index}; it has {role}/0 to {role}/{most}")
    return role, int(index)


@dataclass(frozen=True)
class Armed:
    """Hold the faults of a run, and the folder in which ranks find them."""

    faults: tuple[Fault, ...] = ()
    folder: Path | None = None

    @classmethod
    def create(cls, wanted: tuple[Fault, ...], folder: Path) -> "Armed":
        """Create the folder with a file per fault, where the ranks look for them."""
        folder.mkdir()
        for fault in wanted:
            fault.path(folder).touch()
        return cls(wanted, folder)

    def came(self, fault: Fault) -> datetime | None:
        """Return when the fault came; None if it has not come."""
        try:
            return datetime.fromtimestamp(fault.done(self.folder or Path()).stat().st_mtime, UTC)
        except OSError:
            return None

    def result(self, fault: Fault) -> str:
        """Return the result that the rank noted of a fault; empty if there is none."""
        return fault.result(self.folder or Path())

    def variables(self) -> dict[str, str]:
        """Return the variables for the agents, which pass them on to the ranks; empty without faults."""
        return {names.ENV_FAULTS: str(self.folder)} if self.faults else {}


def event(armed: Armed, fault: Fault) -> PostEvent:
    """Return the event that the view shows when the fault has come."""
    result = armed.result(fault)
    what = _WORDS[fault.kind].format(who=f"{fault.role}/{fault.index}", result=result)
    if fault.kind == faults.CORRUPT_CHECKPOINT and not result:
        what = _NO_CHECKPOINT
    return PostEvent("Warning", "Fault", f"{what} after step {fault.step} (--fault {fault}).")


def costs(armed: Armed, status: TrainingJobStatus) -> tuple[tuple[str, str], ...]:
    """Return each fault with what it cost, by the restart ledger, in the order in which they came."""
    entries = [*status.restarts]
    never = datetime.max.replace(tzinfo=UTC)
    in_time = sorted(armed.faults, key=lambda fault: armed.came(fault) or never)
    return tuple((str(fault), _cost(armed, fault, entries)) for fault in in_time)


def _cost(armed: Armed, fault: Fault, entries: list[RestartRecord]) -> str:
    """Return what a fault cost. Its ledger entry is the first one after it that no earlier fault has taken."""
    came = armed.came(fault)
    if came is None:
        return "did not come: the run was not at that step"
    if fault.kind == faults.CORRUPT_CHECKPOINT:
        step = armed.result(fault)
        return f"changed the checkpoint of step {step}" if step else f"changed nothing: {_NO_CHECKPOINT}"
    if fault.kind not in _ENDING:
        return "came, and is no cause of a restart by itself"
    entry = next((entry for entry in entries if entry.time >= came - _SLACK), None)
    if entry is None:
        return "no restart"
    entries.remove(entry)
    seconds = "" if entry.seconds_lost is None else f", {entry.seconds_lost:.2g} s lost"
    steps = entry.steps_lost or 0
    return f"{steps} {'step' if steps == 1 else 'steps'} to train again{seconds}"
