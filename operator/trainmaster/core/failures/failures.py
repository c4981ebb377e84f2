"""Turn what an agent or a platform reports into a named failure: its class, its evidence, its fingerprint.

What follows from a class stands in `classes`; what an exception says in `signatures`; how a container ended, here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.status import RestartRecord
from trainmaster.core import figures
from trainmaster.core.failures import classes, fingerprint, last_lines, no_device, signatures, tracebacks
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states.observed import Ending, Replica
from trainmaster.wire import names
from trainmaster.wire.messages import ExitReport

_MOST_EVIDENCE = 1000
_MOST_STACKS = 1500
_NO_MODULE = "; what the image does not have, spec.training.packages installs"

# Which code asked for the last byte, and where a rank stood still, is chance.
_ALWAYS_THE_SAME = frozenset({classes.OUT_OF_MEMORY, classes.DEVICE_OUT_OF_MEMORY, classes.HANG, classes.STALLED})

# Signals, and the exit codes that a shell or a container makes of them (128 + number, as in bash).
_ASKED_TO_END = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})
_CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP"})
_CODES = {
    names.EXIT_BAD_CONFIGURATION: classes.CONFIGURATION,
    names.EXIT_TERMINATED: classes.TERMINATED,
    126: classes.CONFIGURATION,
    127: classes.CONFIGURATION,
    130: classes.TERMINATED,
    132: classes.CRASH,
    134: classes.CRASH,
    135: classes.CRASH,
    136: classes.CRASH,
    137: classes.SIGNAL,
    139: classes.CRASH,
}

_SHELL = {126: "a command cannot be executed (its mode, or its format)", 127: "a command was not found"}

# Reasons of a pod or a container (kubelet, containerd, docker) -> class. The platform already recognizes failures of
# nodes for which the cluster moves pods (`Replica.disruption`).
_REASONS = {
    "OOMKilled": classes.OUT_OF_MEMORY,
    "NodeLost": classes.DISRUPTION,
    "NodeShutdown": classes.DISRUPTION,
    "Shutdown": classes.DISRUPTION,
    "Terminated": classes.DISRUPTION,
    "Preempting": classes.DISRUPTION,
    "Evicted": classes.DISRUPTION,
    "StartError": classes.INFRASTRUCTURE,
    "ContainerCannotRun": classes.INFRASTRUCTURE,
    "ContainerStatusUnknown": classes.INFRASTRUCTURE,
    "CreateContainerError": classes.INFRASTRUCTURE,
    "RunContainerError": classes.INFRASTRUCTURE,
    "CreatePodSandboxError": classes.INFRASTRUCTURE,
    "UnexpectedAdmissionError": classes.INFRASTRUCTURE,
    "TopologyAffinityError": classes.INFRASTRUCTURE,
    "NodeAffinity": classes.INFRASTRUCTURE,
    "NodeName": classes.INFRASTRUCTURE,
    "PodSandboxChanged": classes.INFRASTRUCTURE,
}
_KILLED = {137: "SIGKILL", 143: "SIGTERM", 130: "SIGINT", 139: "SIGSEGV", 134: "SIGABRT"}
_OWN_STORAGE = re.compile(r"exceed(s|ed) (the (total )?limit|its local ephemeral storage limit)")
_CANNOT_START = re.compile(
    r"executable file (\S+ )?not found|exec: .*(no such file|permission denied)|exec format error"
    r"|argument list too long|chdir to cwd|unable to find (user|group)"
)
_MOST_OWN_ERROR = 127  # larger codes of a shell or a runtime mean that a signal ended the program
_UNHEALTHY_DEVICE = re.compile(r"unhealthy devices|no healthy devices|nvidia-container-cli|failed to initialize NVML")


@dataclass(frozen=True)
class Failure:
    """A failure is one thing that went wrong, described so that a person understands it."""

    failure_class: str
    replica: str
    node: str
    exit: str
    evidence: str
    step: int
    fingerprint: str = ""
    stacks: str = ""
    seconds_to_detect: float = 0.0  # without a step, as the agent reports that noticed it
    resume_before: int | None = None  # as the rank says: go on from a checkpoint before this step


def of_agent(slot: Slot, attempt: int) -> Failure:
    """Return the failure of an agent whose ranks of `attempt` died."""
    report = slot.heartbeat.exit if slot.heartbeat else None
    if report and report.attempt == attempt:
        return of_rank(slot, report)
    node = slot.replica.node if slot.replica else ""
    return Failure(classes.PROCESS_EXIT, slot.key, node, "unknown", f"{slot.key} says that a rank died, but not how", 0)


def of_rank(slot: Slot, report: ExitReport) -> Failure:
    """Return the failure that an agent reports of one of its ranks."""
    report = tracebacks.with_error(report)
    missing, exit_text, error = no_device.cure(slot, report), _exit_text(report), report.error
    kind = classes.CONFIGURATION if missing else class_of(report)
    mark = kind
    if kind not in _ALWAYS_THE_SAME:
        mark = fingerprint.of_error(kind, error) if error else figures.legible(f"{kind}|{exit_text}")
    told = error.resume_before if error else None
    return Failure(
        failure_class=kind,
        replica=f"{slot.key} rank {figures.count(report.rank)}",
        node=slot.replica.node if slot.replica else "",
        exit=figures.legible(exit_text),
        evidence=figures.legible(f"{_evidence(report)}; {missing}" if missing else _evidence(report)),
        step=figures.count(report.step),
        fingerprint=mark,
        stacks=figures.legible(clipped(report.stacks)),
        seconds_to_detect=figures.seconds(report.overdue_seconds or 0.0),
        resume_before=figures.count(told) if told is not None else None,
    )


def of_replica(replica: Replica, step: int) -> Failure:
    """Return the failure of a whole replica: deleted, evicted, or its agent ended."""
    kind = class_of_replica(replica)
    ending = replica.ending
    code = f"exit code {ending.exit_code}" if ending and ending.exit_code is not None else "no exit code"
    if kind == classes.REPLICA_DELETED:
        code = "deleted"
    said = " ".join(part for part in (ending.reason, ending.message) if part) if ending else ""
    repeats = said
    if kind == classes.AGENT_FAILED:  # of a log only the last line repeats, as the lines before it vary
        repeats = last_lines.last_line(ending.message if ending else said)
    evidence = figures.legible(_replica_evidence(replica, kind, code, said)[:_MOST_EVIDENCE])
    return Failure(
        failure_class=kind,
        replica=names.replica_key(replica.role, replica.index),
        node=replica.node,
        exit=code,
        evidence=evidence,
        step=step,
        fingerprint=kind if kind in _ALWAYS_THE_SAME else f"{kind}|{code}|{fingerprint.of_text(repeats)}",
    )


def of_lost(lost: Sequence[Slot], step: int) -> Failure:
    """Return one failure for all replicas lost at once: the first that the job itself caused, else the first."""
    found = []
    for slot in lost:
        if slot.replica:
            found.append(of_replica(slot.replica, step))
        else:  # it does not exist any more
            evidence = f"{slot.key} (incarnation {slot.incarnation}) is gone"
            found.append(Failure(classes.REPLICA_DELETED, slot.key, "", "deleted", evidence, step))
    return min(found, key=lambda failure: failure.failure_class in classes.FREE)


def class_of(report: ExitReport) -> str:
    """Return the class of a rank's end. What the agent knows for certain goes before the text of the error."""
    if report.exit_code == names.EXIT_BAD_CONFIGURATION:
        return classes.CONFIGURATION
    if report.hung:
        return classes.STALLED if report.waiting else classes.HANG
    told = signatures.class_of(report.error) if report.error else ""
    if report.out_of_memory and told != classes.DEVICE_OUT_OF_MEMORY:
        return classes.OUT_OF_MEMORY
    if told or not report.signal:
        return told or _CODES.get(report.exit_code or 0, classes.PROCESS_EXIT)
    if report.signal in _ASKED_TO_END:
        return classes.TERMINATED
    return classes.CRASH if report.signal in _CRASHES else classes.SIGNAL


def class_of_replica(replica: Replica) -> str:
    """Return the class of a replica's end: by what caused it, then by how it ended."""
    ending = replica.ending or Ending()
    if _OWN_STORAGE.search(f"{ending.message} {replica.disruption_message}"):
        return classes.OUT_OF_STORAGE  # an eviction too, but caused by the job itself
    if replica.disruption:
        return classes.DISRUPTION
    if replica.deleting and ending.reason != "OOMKilled":
        return classes.REPLICA_DELETED
    return _class_of_ending(ending)


def _class_of_ending(ending: Ending) -> str:
    if ending.exit_code == names.EXIT_BAD_CONFIGURATION:
        return classes.CONFIGURATION
    if ending.exit_code == names.EXIT_UNAVAILABLE and not ending.container:
        return classes.SERVICE_UNAVAILABLE
    kind = _REASONS.get(ending.reason, classes.REPLICA_ENDED)
    if kind == classes.INFRASTRUCTURE and _CANNOT_START.search(ending.message):
        return classes.CONFIGURATION
    if kind == classes.INFRASTRUCTURE and _UNHEALTHY_DEVICE.search(ending.message):
        return classes.DEVICE_FAULT
    if kind == classes.REPLICA_ENDED and 0 < (ending.exit_code or 0) <= _MOST_OWN_ERROR:
        return classes.AGENT_FAILED
    return kind


def clipped(stacks: str) -> str:
    """Return stacks short enough for a status: the first, of the rank that hung; the rest is in the agent's log."""
    text = stacks[: 2 * _MOST_STACKS].strip()
    if len(text) <= _MOST_STACKS:
        return text
    return f"{text[:_MOST_STACKS].rsplit(chr(10), 1)[0]}\n... (the rest is in the agent's log)"


def _exit_text(report: ExitReport) -> str:
    if report.hung:
        return "hung"
    if report.signal:
        return report.signal[:40] + (" (out of memory)" if report.out_of_memory else "")
    return "unknown" if report.exit_code is None else f"exit code {figures.bounded(report.exit_code)}"


def _evidence(report: ExitReport) -> str:
    rank = figures.count(report.rank)
    if report.error is None and report.hung:
        waiting = ", waiting for its peers" if report.waiting else ""
        return f"rank {rank} ended no step for too long after step {figures.count(report.step)}{waiting}"
    if report.error is None:
        what = _SHELL.get(report.exit_code or 0)
        cure = f": {what}; correct spec.training.command, or add it to the image" if what else ""
        said = last_lines.in_one_line(report.said)
        ended = f"rank {rank} ended with {_exit_text(report)}{cure}"
        return f"{ended}: {said}"[:_MOST_EVIDENCE] if said else ended
    where = f" ({report.error.frame})" if report.error.frame else ""
    # It names field and cure, the cure last, perhaps after lines of another error; our own frame does not help.
    if report.exit_code == names.EXIT_BAD_CONFIGURATION:
        return " ".join(report.error.message.split())[:_MOST_EVIDENCE].rstrip(".")
    cure = _NO_MODULE if report.error.type == "ModuleNotFoundError" else ""
    first_line = fingerprint.first_line(report.error.message)
    return f"{report.error.type}: {first_line}{where}"[: _MOST_EVIDENCE - len(cure)] + cure


def _replica_evidence(replica: Replica, kind: str, code: str, said: str) -> str:
    if replica.disruption:
        return f"{replica.disruption}: {replica.disruption_message or said or replica.name}"
    if kind == classes.OUT_OF_MEMORY:
        return f"{replica.name} was killed for memory"
    if kind == classes.REPLICA_DELETED:
        return f"{replica.name} is being deleted"
    ending = replica.ending or Ending()
    log = last_lines.in_one_line(ending.message)  # lines that may tell why, but not those that say that all goes well
    if kind == classes.CONFIGURATION:
        return last_lines.why_it_cannot_start(log) or "the agent refused its configuration"
    if kind == classes.AGENT_FAILED:
        who = f"the init container {ending.container} of {replica.name}" if ending.container else replica.name
        return f"{who} ended with {code}: {log or 'it said nothing'}"
    signal = _KILLED.get(ending.exit_code or 0)
    how = f"its agent was ended by {signal} ({code})" if signal else " ".join(filter(None, (ending.reason, code)))
    how = f"{how}; {ending.suspect}" if ending.suspect else how
    return f"{replica.name} ended: {how}; its log ends with: {log}" if log else f"{replica.name} ended: {how}"


def of_line(line: RestartRecord) -> Failure:
    """Return the failure that an entry of the ledger is about."""
    return Failure(
        failure_class=line.failure_class,
        replica=line.replica or "",
        node=line.node or "",
        exit=line.exit or "",
        evidence=line.evidence or "",
        step=line.step,
        stacks=line.stacks or "",
        fingerprint=line.fingerprint or "",
    )
