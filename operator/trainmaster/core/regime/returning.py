"""Compute what the failure of a member cost that starts again alone, and when its line in the ledger is over.

A line is over when the members that it names train again, whatever becomes of others meanwhile. After a failure of all,
and where no member is named any more, it is over when all workers train. A worker costs the others no step. A server
may: where it is lost together with its copy, all are set back to a checkpoint, and the servers report from which step
they went on.
"""

from trainmaster.api.status import RestartRecord
from trainmaster.core.failures import ledger, lost_steps
from trainmaster.core.failures.ledger import Lines
from trainmaster.core.regime import membership
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import names


def closed(facts: Facts, lines: Lines) -> Lines:
    """Return the lines, with the cost in those that are over now."""
    found = []
    for line in lines:
        awaited = _named(facts, line) or [slot for slot in facts.slots if slot.role == names.WORKER]
        if line.seconds_lost is None and all(membership.is_back(facts, slot) for slot in awaited):
            (told,) = lost_steps.shared((line,), (0,), _resumed_step(facts, line))
            found.append(ledger.closed(told, facts.now))
        else:
            found.append(line)
    return tuple(found)


def _named(facts: Facts, line: RestartRecord) -> list[Slot]:
    """Return the members that the line names, without those that are not wanted any more."""
    return [slot for slot in facts.slots if slot.key in (line.members or ())]


def _resumed_step(facts: Facts, line: RestartRecord) -> int | None:
    """Return from which step training went on after this failure; None where no step was lost, or none is reported."""
    if line.members is None:
        return facts.resumed_step if line.attempt < facts.status.attempt else None
    servers = [slot.heartbeat for slot in _named(facts, line) if slot.role == names.PARAMETER_SERVER]
    told = [rank.resumed_step for beat in servers if beat for rank in beat.ranks]
    return min((step for step in told if step is not None), default=None)
