"""Tell the story of a job in plain sentences: what died, where, the evidence, what it cost, what was decided and why.

It is made of `.status` alone, so it is the same on a laptop, from a cluster, and a year later.
"""

from collections.abc import Iterator
from datetime import datetime

from trainmaster.api.job_states import TERMINAL, RestartDecision
from trainmaster.api.status import RestartRecord, StepTime, TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import classes
from trainmaster.core.report import waits

_DECISIONS = {
    RestartDecision.RESTART: "It was started again",
    RestartDecision.STOP: "The job was stopped",
    RestartDecision.WAIT: "Nobody may start yet",
}
_WORTH_TELLING = {
    ("Straggling", "True"),
    ("Waiting", "True"),
    ("CheckpointSaving", "False"),
    ("TrackersReached", "False"),
    ("CheckpointStorage", "True"),  # the job does not say itself where it keeps its model
}
_ACCOUNTS = (
    ("training", "training"),
    ("lost_work", "steps that had to be trained again"),
    ("saving", "saving"),
    ("recovering", "recovering"),
    ("starting", "starting"),
    ("waiting", "waiting"),
)


def story(status: TrainingJobStatus, name: str = "", phase: str = "") -> tuple[str, ...]:
    """Return one sentence or more per line, oldest first; indented lines belong to the one above.

    `phase` is the word for its phase where the status has another: a run that has died wrote none.
    """
    return tuple(_lines(status, name or "The job", phase or status.phase))


def _lines(status: TrainingJobStatus, name: str, phase: str) -> Iterator[str]:
    yield _beginning(status, name)
    for line in status.restarts:
        yield from _failure(line)
    forgotten = status.restart_count - sum(1 for line in status.restarts if line.decision == RestartDecision.RESTART)
    if forgotten > 0:
        yield f"{_number(forgotten, 'restart')} more, of which the ledger has no line any more."
    for node in status.avoided_nodes:
        yield f"Node {node.node} is avoided until {_clock(node.until)}: {node.reason}"
    for one in status.conditions:
        if (one.type, one.status) in _WORTH_TELLING or one.reason == waits.TO_THE_END:
            yield figures.sentence(one.message)
    yield _now(status, name, phase)
    for time in (status.progress.step_times if status.progress else None) or ():
        yield _step_time(time)
    if status.goodput and status.goodput.total > 0:
        spent = status.goodput
        parts = [(getattr(spent, account), words) for account, words in _ACCOUNTS]
        told = [
            f"{words} {figures.tenths(value)} ({100 * value / spent.total:.0f}%)" for value, words in parts if value > 0
        ]
        yield f"Of {figures.tenths(spent.total)}: {', '.join(told)}."


def _beginning(status: TrainingJobStatus, name: str) -> str:
    if status.start_time is None:
        return f"{name} has not been looked at yet."
    began = (status.goodput.since if status.goodput else None) or status.start_time
    first, last = _clock(began), _clock(status.start_time)
    resumed = f", and was resumed at {last}" if status.start_time > began and last != first else ""
    return f"{name} began at {first}{resumed}."


def _failure(line: RestartRecord) -> Iterator[str]:
    where = f" on {line.node}" if line.node else ""
    how = f" ({line.exit})" if line.exit and line.exit not in ("none", "unknown") else ""
    who = f"{line.replica or 'somebody'}{where}{how}"
    yield f"{_clock(line.time)}: attempt {line.attempt} ended at step {line.step}: {who}."
    yield f"    Evidence: {line.evidence or 'none'}"
    kind = classes.BY_NAME.get(line.failure_class)
    if kind:
        budget = "Restarts do not help against it." if kind.limit == 0 else "It costs no budget."
        if kind.limit:
            budget = f"It has a budget of its own: {_number(kind.limit, 'restart')} without progress."
        if kind.costs:
            budget = "It counts against spec.failurePolicy.maxRestarts."
        yield f"    Class {kind.name}: {figures.sentence(kind.means)} {budget}"
    yield f"    Cost: {_cost(line)}"
    yield f"    {_DECISIONS[line.decision] if line.decision else 'Nothing was decided'}: {line.why}"
    if line.stacks:
        yield "    Where it stood:"
        yield from (f"        {text}" for text in line.stacks.splitlines())


def _cost(line: RestartRecord) -> str:
    steps = "steps trained again were not told"
    if line.steps_lost is not None:
        ended = line.decision == RestartDecision.STOP
        steps = _number(line.steps_lost, "step") + (" since the last checkpoint" if ended else " trained again")
    if line.seconds_lost is None:
        return f"{steps}; training has not gone on."
    unseen = f" ({line.seconds_to_detect:.3g} s of them before it was seen)" if line.seconds_to_detect else ""
    return f"{steps}; {line.seconds_lost:.3g} s until the next step{unseen}."


def _now(status: TrainingJobStatus, name: str, phase: str) -> str:
    progress = f" at step {status.progress.summary}" if status.progress else ""
    said = f": {figures.sentence(status.message)}" if status.message else "."
    if status.phase in TERMINAL:
        when = f" at {_clock(status.completion_time)}" if status.completion_time else ""
        why = f" ({status.reason})" if status.reason else ""
        return f"{name} {status.phase.lower()}{when}{progress}{why}{said}"
    return f"{name} is {phase.lower()} now, in attempt {status.attempt}{progress}{said}"


def _step_time(time: StepTime) -> str:
    parts = (
        (time.computing, "computing"),
        (time.data, "waiting for samples"),
        (time.exchange, "waiting for other ranks"),
        (time.snapshots, "taking snapshots"),
    )
    whole = sum(seconds or 0.0 for seconds, _ in parts)
    told = ", ".join(f"{seconds:.3g} s {words}" for seconds, words in parts if seconds)
    if not told:
        return f"    Rank {time.rank}: no time told."
    return f"    A step of rank {time.rank} takes {whole:.3g} s: {told}."


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _clock(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}Z" if time else "an unknown time"
