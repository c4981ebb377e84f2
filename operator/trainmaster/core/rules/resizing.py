"""Begin a new attempt when `spec.workers.replicas` was changed: the group has the new size. It costs no restart.

The size that the present attempt was started with stands in `status.replicas.desired`, which is written together with
the attempt.
"""

import dataclasses

from trainmaster.api.states import Phase
from trainmaster.core.failures import ledger
from trainmaster.core.regime import membership
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import phases
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names


def resize(facts: Facts) -> Verdict:
    """Resize in any phase in which agents may run ranks of the old size. A group that still gathers simply changes."""
    before, now = facts.status.replicas, facts.job.spec.workers.replicas
    if before is None:
        return NOTHING
    if facts.status.phase in phases.GATHERING:
        return NOTHING if before.desired == now else _another_group(facts)
    if membership.alone(facts):
        return _other_servers(facts)
    if before.desired == now:
        return NOTHING
    return Verdict(
        status=dataclasses.replace(
            ledger.overtaken(facts.status, "resized"),
            attempt=facts.status.attempt + 1,
            phase=Phase.RESIZING,
            message=f"Resizing from {before.desired} to {now} workers.",
            absent=_still_missed(facts),
        )
    )


def _another_group(facts: Facts) -> Verdict:
    """Change a group that gathers. An unexplained failure costs no budget: its cause may be a replica that leaves."""
    status = dataclasses.replace(ledger.overtaken(facts.status, "resized"), absent=_still_missed(facts))
    return Verdict(status=status) if status != facts.status else NOTHING


def _still_missed(facts: Facts) -> tuple[str, ...]:
    """Return the workers that the group of the new size goes on without; none if those left would be too few."""
    least = facts.job.spec.elasticity.min_replicas if facts.job.spec.elasticity else 1
    present = [slot for slot in facts.slots if slot.role == names.WORKER]
    return tuple(slot.key for slot in facts.left_out) if len(present) >= least else ()


def _other_servers(facts: Facts) -> Verdict:
    """Begin a new attempt for another number of servers only: workers come and go in rules/members.py."""
    before, now = facts.status.founders, facts.job.spec.servers
    if before is None or before.parameter_servers == now:
        return NOTHING
    return Verdict(
        status=dataclasses.replace(
            facts.status,
            attempt=facts.status.attempt + 1,
            phase=Phase.RESIZING,
            message=f"Resizing from {before.parameter_servers} to {now} parameter servers.",
        )
    )
