"""Raise the attempt when a rank died, or stop the job and say why.

The whole group trains again from the newest checkpoint, in the same pods. Each failure is counted once: its report
carries the attempt, and the attempt rises with it. It also rises when all ranks live, but only wait for one another.
"""

from trainmaster.core.failures import classes, failures, judgement, uneven
from trainmaster.core.failures.failures import Failure
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import messages
from trainmaster.wire.agent_states import AgentState


def restart_ranks(facts: Facts) -> Verdict:
    """Return the verdict where an agent reports that its ranks of the present attempt died."""
    failed = [failures.of_agent(slot, facts.status.attempt) for slot in facts.regime.group_at(AgentState.FAILED)]
    failed = failed or _deadlocked(facts)
    if not failed:
        return NOTHING
    # The survivors' errors are symptoms: name another failure where there is one.
    failed.sort(key=lambda failure: failure.failure_class in classes.SYMPTOMS)
    cause = uneven.behind(facts, failed[0], facts.status.attempt)
    return Verdict(status=judgement.after_failure(facts, cause or failed[0]))


def _deadlocked(facts: Facts) -> list[Failure]:
    """Return the failures of replicas that wait too long, if all do: a single one may wait for one that works."""
    for slot in facts.slots:
        beat = slot.heartbeat
        if slot.key in facts.done:
            continue
        if beat is None or beat.attempt != facts.status.attempt or beat.state != AgentState.RUNNING:
            return []  # it may be at work; ranks that never report count as not at work
        if _stall(facts, beat) is None and any(rank.phase != "done" for rank in beat.ranks):
            return []
    told = [(slot, _stall(facts, slot.heartbeat)) for slot in facts.regime.group_at(AgentState.RUNNING)]
    return [failures.of_rank(slot, report) for slot, report in told if report]


def _stall(facts: Facts, beat: messages.Heartbeat | None) -> messages.ExitReport | None:
    """Return its report of ranks that wait too long in the present attempt; None where there is none."""
    report = beat.stalled if beat else None
    return report if report and report.attempt == facts.status.attempt else None


def restart_drifted(facts: Facts) -> Verdict:
    """Return the verdict where an agent trains with an older roster: a member was replaced meanwhile."""
    drifted = facts.regime.drifted()
    if not drifted:
        return NOTHING
    evidence = f"{drifted[0].key} trains with an older roster of attempt {facts.status.attempt}"
    failure = Failure(classes.ROSTER_CHANGED, drifted[0].key, "", "none", evidence, facts.step)
    return Verdict(status=judgement.after_failure(facts, failure))
