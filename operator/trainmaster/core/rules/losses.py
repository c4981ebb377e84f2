"""Replace a replica that is lost (deleted, evicted, its agent ended, its node gone) by a new incarnation.

The old one is not waited for: a pod that is stuck in Terminating has an older number in its name than its successor.
The others keep their pods and wait, warm, for the next attempt. Where a spare stands by, it takes the place in that
attempt, and the successor becomes the spare. A replica whose ranks had all ended well is not needed any more.
"""

import dataclasses

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import avoided, classes, failures, judgement, ledger
from trainmaster.core.failures.failures import Failure
from trainmaster.core.situation import spares, unreachable
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.slots import Slot
from trainmaster.core.states import phases
from trainmaster.core.states.verdict import Verdict


def replace_lost(facts: Facts) -> Verdict:
    """Write the new incarnations, and a new attempt where ranks of the present one may run, heard of or not."""
    lost = [slot for slot in facts.regime.group() if _lost(facts, slot)]
    if not lost:
        return Verdict(wake_at=unreachable.due(facts.job, facts.observed, facts.now))
    at_work = [slot for slot in lost if slot.key not in facts.done]
    if not at_work:
        return Verdict(status=_remembered(facts, lost))
    failure = failures.of_lost(at_work, facts.step)
    exchange = spares.step_in(facts, lost)
    replaced = dataclasses.replace(
        exchange.written(facts.status),
        incarnations=facts.replacing(lost),
        avoided_nodes=avoided.with_cut_off(facts, lost),
    )
    if _harmless(facts, failure):
        message = f"{figures.sentence(failure.evidence)} {exchange.sentence or 'Replacing it.'}"
        return Verdict(status=dataclasses.replace(replaced, message=message))
    return Verdict(status=ledger.noted(judgement.after_failure(facts, failure, replaced), exchange.sentence))


def _remembered(facts: Facts, through: list[Slot]) -> TrainingJobStatus:
    """Return the status with these workers done: the others train on, and new replicas come with a new attempt only."""
    gone = ", ".join(slot.key for slot in through)
    return dataclasses.replace(
        facts.status,
        done=tuple(sorted({*facts.status.done, *(slot.key for slot in through)})),
        incarnations=facts.replacing(through),
        message=f"{gone} had finished before its replica was lost; the others train on.",
    )


def _lost(facts: Facts, slot: Slot) -> bool:
    if slot.replica is None:
        return _was_complete(facts) and slot.key not in facts.written_done
    return not slot.replica.alive


def _was_complete(facts: Facts) -> bool:
    """Return whether the group was complete, as a survivor's error also shows; else replicas may not exist yet."""
    phase = facts.status.phase
    return phase not in phases.GATHERING or (phase == Phase.RESTARTING and ledger.unexplained(facts.status) is not None)


def _harmless(facts: Facts, failure: Failure) -> bool:
    """Return whether the loss is free, no rank was told to run, and it is not the cause of an unexplained failure."""
    gathering = facts.status.phase in phases.GATHERING
    return failure.failure_class in classes.FREE and gathering and ledger.explained_by(facts, failure) is None
