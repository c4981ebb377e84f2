"""Name the cause of a restart that a survivor's error began, once the cause is known.

The ledger is corrected, and the decision is made again: a cause that would only repeat itself ends the job, and one
that is not the job's fault gives the budget back. A survivor's error alone never ends a job while a replica that was
there has not reported: it may follow from an eviction, or from a node that the cluster has not given up yet.
"""

from trainmaster.api.status import RestartRecord
from trainmaster.core import figures
from trainmaster.core.failures import classes, failures, judgement, ledger, uneven
from trainmaster.core.failures.failures import Failure
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.verdict import NOTHING, Verdict


def name_the_cause(facts: Facts) -> Verdict:
    """Replace the newest entry of the ledger where it names only a symptom of another rank's death."""
    symptom = facts.regime.to_explain()
    if symptom is None:
        return NOTHING
    cause = _cause(facts, symptom.attempt) or uneven.behind(facts, failures.of_line(symptom), symptom.attempt)
    if cause:
        return Verdict(status=judgement.judged(facts, cause))
    return _wait(facts, symptom) if ledger.undecided(facts.status) else NOTHING


def _wait(facts: Facts, symptom: RestartRecord) -> Verdict:
    """Wait until all replicas have reported or are lost (rules/losses.py), `startSeconds` at most; then stop."""
    end = figures.later(symptom.time, facts.job.spec.failure_policy.start_seconds)
    attempt, beats = symptom.attempt, [slot.heartbeat for slot in facts.slots if slot.heartbeat]
    # An agent has spoken that reports how its ranks of the attempt ended, or is at a later one.
    spoken = [beat for beat in beats if beat.attempt > attempt or (beat.exit and beat.exit.attempt == attempt)]
    if len(spoken) < len(facts.slots) and symptom.time <= facts.now < end:  # a time in the future was edited by hand
        return Verdict(wake_at=end)
    return Verdict(status=judgement.stop_undecided(facts))


def _cause(facts: Facts, attempt: int) -> Failure | None:
    """Return the first death of that attempt that is no symptom; None: none yet. Agents keep their last report."""
    for slot in facts.slots:
        report = slot.heartbeat.exit if slot.heartbeat else None
        if report and report.attempt == attempt:
            failure = failures.of_rank(slot, report)
            if failure.failure_class not in classes.SYMPTOMS:
                return failure
    return None
