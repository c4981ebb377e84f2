"""From what an agent or a platform reports to a named failure: its class, its evidence, its fingerprint.

A failure's class decides what follows (rules/restarts.py); its fingerprint tells whether the same thing happened
again. Two errors that differ only in numbers or addresses have one fingerprint.
"""

import re
from dataclasses import dataclass

from trainmaster.core import figures
from trainmaster.core.facts import Slot
from trainmaster.core.observed import Replica
from trainmaster.wire import names
from trainmaster.wire.messages import ExitReport

CONFIGURATION = "Configuration"  # cannot mend itself: task not importable, wrong arguments, foreign checkpoint
PYTHON_ERROR = "PythonError"
OUT_OF_MEMORY = "OutOfMemory"
SIGNAL = "Signal"
PROCESS_EXIT = "ProcessExit"
PEER_LOST = "PeerLost"  # the error of a survivor: its peer's end is the cause
REPLICA_ENDED = "ReplicaEnded"  # the agent itself, or its container, ended
REPLICA_DELETED = "ReplicaDeleted"
DISRUPTION = "Disruption"  # eviction, preemption, node lost: nobody's fault, costs no budget
ROSTER_CHANGED = "RosterChanged"

# Failures that the job did not cause.
FREE = frozenset({DISRUPTION, REPLICA_DELETED, ROSTER_CHANGED})

_PEER_LOST = re.compile(
    r"connection (closed|reset) by peer|gloo|nccl|broken pipe|socket timeout|DistNetworkError", re.IGNORECASE
)
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True)
class Failure:
    """One thing that went wrong, said so that a person understands it."""

    failure_class: str
    replica: str
    node: str
    exit: str
    evidence: str
    step: int
    fingerprint: str = ""


def of_agent(slot: Slot, attempt: int) -> Failure:
    """The failure of an agent whose ranks of `attempt` died."""
    report = slot.heartbeat.exit if slot.heartbeat else None
    if report and report.attempt == attempt:
        return of_rank(slot, report)
    node = slot.replica.node if slot.replica else ""
    return Failure(PROCESS_EXIT, slot.key, node, "unknown", f"{slot.key} says that a rank died, but not how", 0)


def of_rank(slot: Slot, report: ExitReport) -> Failure:
    """The failure that an agent reports of one of its ranks."""
    kind = _class_of(report)
    return Failure(
        failure_class=kind,
        replica=f"{slot.key} rank {report.rank}",
        node=slot.replica.node if slot.replica else "",
        exit=figures.legible(_exit_text(report)),
        evidence=figures.legible(_evidence(report)),
        step=figures.count(report.step),
        fingerprint=figures.legible(_fingerprint(kind, report)),
    )


def of_replica(replica: Replica, step: int) -> Failure:
    """The failure of a whole replica: deleted, evicted, or its agent ended."""
    key = names.replica_key(replica.role, replica.index)
    ending = replica.ending
    code = f"exit code {ending.exit_code}" if ending and ending.exit_code is not None else "no exit code"
    said = " ".join(part for part in (ending.reason, ending.message) if part) if ending else ""
    if replica.disruption:
        return Failure(DISRUPTION, key, replica.node, code, f"{replica.disruption}: {said or replica.name}", step)
    if ending and ending.reason == "OOMKilled":
        return Failure(OUT_OF_MEMORY, key, replica.node, code, f"{replica.name} was killed for memory", step, "oom")
    if replica.deleting:
        return Failure(REPLICA_DELETED, key, replica.node, "deleted", f"{replica.name} is being deleted", step)
    if ending and ending.exit_code == names.EXIT_BAD_CONFIGURATION:
        return Failure(CONFIGURATION, key, replica.node, code, said or "the agent refused its configuration", step)
    evidence = f"{replica.name} ended: {said or code}"
    return Failure(REPLICA_ENDED, key, replica.node, code, evidence, step, _VARYING.sub("#", f"ended {code} {said}"))


def vanished(slot: Slot, step: int) -> Failure:
    """The failure of a replica that is simply no longer there."""
    evidence = f"{slot.key} (incarnation {slot.incarnation}) is gone"
    return Failure(REPLICA_DELETED, slot.key, "", "deleted", evidence, step)


def _class_of(report: ExitReport) -> str:
    if report.exit_code == names.EXIT_BAD_CONFIGURATION:
        return CONFIGURATION
    if report.out_of_memory:
        return OUT_OF_MEMORY
    if report.signal:
        return SIGNAL
    if report.error is None:
        return PROCESS_EXIT
    return PEER_LOST if _PEER_LOST.search(f"{report.error.type} {report.error.message}") else PYTHON_ERROR


def _exit_text(report: ExitReport) -> str:
    if report.signal:
        return report.signal + (" (out of memory)" if report.out_of_memory else "")
    return f"exit code {report.exit_code}"


def _evidence(report: ExitReport) -> str:
    if report.error is None:
        return f"rank {report.rank} ended with {_exit_text(report)}"
    where = f" ({report.error.frame})" if report.error.frame else ""
    first_line = report.error.message.strip().split("\n", 1)[0]
    if report.exit_code == names.EXIT_BAD_CONFIGURATION:  # it names field and cure; where we noticed helps nobody
        return first_line[:1000].rstrip(".")
    return f"{report.error.type}: {first_line}{where}"[:1000]


def _fingerprint(kind: str, report: ExitReport) -> str:
    """Class, exception type, message without numbers, and the top frame of the user's code."""
    error = report.error
    if error is None:
        return f"{kind}|{_exit_text(report)}"
    first_line = error.message.strip().split("\n", 1)[0]
    return _VARYING.sub("#", f"{kind}|{error.type}|{first_line}|{error.frame}")[:300]
