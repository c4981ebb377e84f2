"""Look after spares: a lost one is replaced, and a ready one fills a place that stays empty.

A spare trains nothing, so its loss is no failure: no attempt, no budget, no line in the ledger. rules/losses.py lets a
spare take the place of a lost worker; this rule, that of a worker that has not come.
"""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.core import figures
from trainmaster.core.failures import failures, ledger
from trainmaster.core.situation import spares
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.core.states.observed import ReplicaPhase
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names

# How long a group that gathers waits for a worker before a spare takes its place. It does not wait for one that
# replaces a lost worker and whose container has not even started.
PATIENCE_SECONDS = 10
# While the ledger has only a symptom, a missing worker may still report the cause, or be lost, which is the cause too.
# A node that is lost reports nothing, and the cluster takes minutes to give it up.
ECHO_SECONDS = 60


def look_after(facts: Facts) -> Verdict:
    """Make one change, or return when to look again."""
    if not facts.job.spec.spares:
        return NOTHING
    lost = [slot for slot in facts.spares if slot.replica and not slot.replica.alive]
    if lost:
        evidence = figures.sentence(failures.of_lost(lost, facts.step).evidence)
        message = f"{evidence} It stood by as a spare: training is not disturbed. Replacing it."
        status = dataclasses.replace(facts.status, incarnations=facts.replacing(lost), message=message)
        return Verdict(status=status)
    return _filled(facts) if any(slot.ready for slot in facts.spares) else NOTHING


def _filled(facts: Facts) -> Verdict:
    """Fill empty places with spares: at once where the group does without, else when the worker's time is up."""
    empty = [slot for slot in facts.left_out if not slot.ready]
    echo = ledger.unexplained(facts.status) is not None
    missing: list[Slot] = []  # none is waited for while a cause is awaited that decides whether to go on
    if facts.status.phase in phases.GATHERING and not ledger.undecided(facts.status):
        missing = [slot for slot in facts.missing if slot.role == names.WORKER]
    due = figures.later(facts.incomplete_since, ECHO_SECONDS if echo else PATIENCE_SECONDS)
    for slot in missing:
        is_pending = slot.replica is None or slot.replica.phase == ReplicaPhase.PENDING
        # It replaces one that was lost when no spare was ready.
        only_just_made = facts.status.phase == Phase.RESTARTING and is_pending
        if facts.now >= due or (only_just_made and not echo):
            empty.append(slot)
    if not empty:
        return Verdict(wake_at=due) if missing else NOTHING
    exchange = spares.step_in(facts, empty)
    return Verdict(
        status=dataclasses.replace(
            exchange.written(facts.status), message=f"{empty[0].key} has not come. {exchange.sentence}"
        )
    )
