"""Find what to show of a failed job: the traceback of the rank that failed first, or its last lines.

The evidence line of the restart ledger is in the status already; this is the rest.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.job_states import Phase, RestartDecision
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core.failures import classes
from trainmaster.wire import names
from trainmaster.wire.files import open_to_read
from trainmaster.wire.messages import Heartbeat

LAST_LINES = 15
_TAIL_BYTES = 16384
_OURS = "/trainmaster_trainer/"  # our own code in a traceback is of no use: the message (a full disk, say) is enough
AGENT_PREFIX = "trainmaster agent:"  # the agent's own lines among those of its ranks


@dataclass(frozen=True)
class Cause:
    """Hold what to show.

    `known`: the status or `lines` explain the end, so the last output of the ranks is not repeated.
    """

    title: str = ""
    lines: tuple[str, ...] = ()
    known: bool = False


def cause_of(status: TrainingJobStatus, heartbeats: Sequence[Heartbeat], logs: Path) -> Cause:
    """Return the cause of a failed job; empty where there is nothing to show."""
    last = status.restarts[-1] if status.restarts else None
    if status.phase == Phase.SUCCEEDED and last is not None:
        return Cause(known=True)  # the ledger has each failure; what other ranks print about it adds nothing
    if status.phase != Phase.FAILED or last is None or last.decision != RestartDecision.STOP:
        return Cause()
    if last.failure_class == classes.CONFIGURATION:
        return Cause(known=True)  # the message names field and cure; a traceback adds nothing
    beat = next((beat for beat in heartbeats if _is_of(beat, last)), None)
    error = beat.exit.error if beat and beat.exit else None
    if error and error.traceback:
        shown = () if _OURS in error.frame else tuple(error.traceback.rstrip().splitlines())
        return Cause(last.replica or "", shown, known=True)
    if beat is None or (beat.role, beat.index) == (names.WORKER, 0):
        return Cause()  # the view shows what the first worker prints
    log = f"{names.replica_name(beat.job.partition('/')[2], beat.role, beat.index, beat.incarnation)}.log"
    return Cause(f"the last lines of logs/{log}", tail(logs / log))


def tail(log: Path) -> tuple[str, ...]:
    """Return the last lines that ranks wrote, without the agent's own; empty if the log cannot be read."""
    return tuple(line for line in end_of(log) if not line.startswith(AGENT_PREFIX))[-LAST_LINES:]


def end_of(log: Path) -> list[str]:
    """Return the last lines of a log; empty if it cannot be read."""
    try:
        with os.fdopen(open_to_read(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _is_of(heartbeat: Heartbeat, entry: RestartRecord) -> bool:
    report = heartbeat.exit
    if report is None or report.attempt != entry.attempt:
        return False
    return entry.replica == f"{names.replica_key(heartbeat.role, heartbeat.index)} rank {report.rank}"
