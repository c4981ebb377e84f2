"""End a job as succeeded when every worker's ranks ended with exit code 0 in the same attempt.

A worker that has finished need not be there any more when the last one finishes: `status.done` remembers it. Where
members come and go, those present do all the work of a task: a worker that has not begun is not waited for. Where
the first worker leads (`frameworks.is_led`), its end alone counts: the others serve until they are told to end.
"""

from trainmaster.core.situation import lost_with_pods, measures
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import ending
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState


def complete(facts: Facts) -> Verdict:
    """Set the phase Succeeded, which is final."""
    there = {slot.key for slot in facts.at_attempt(AgentState.FINISHED)}.union(facts.status.done)
    workers = [slot for slot in facts.slots if slot.role == names.WORKER]
    needed = workers[:1] if facts.job.spec.led else facts.regime.must_finish(workers)
    finished = [slot for slot in workers if slot.key in there]
    if len(finished) < facts.regime.least_to_finish() or any(slot.key not in there for slot in needed):
        return NOTHING
    if facts.job.spec.led:
        message = f"{workers[0].key}, which leads the others, finished."
        return Verdict(status=ending.succeeded(facts.status, f"{message}{lost_with_pods.at_the_end(facts)}", facts.now))
    message = f"All {len(finished)} workers finished." if len(finished) > 1 else "The worker finished."
    steps, began = facts.job.spec.training.steps, facts.resumed_step
    if steps is not None and began is not None and began > steps and not facts.job.spec.training.command:
        beyond = f"beyond spec.training.steps ({steps}), so nothing was left to train"  # it was lowered
        message = f"The newest checkpoint is of step {began}, {beyond}."
    early = measures.stopped(facts, facts.status)
    said = f"{early or message}{lost_with_pods.at_the_end(facts)}"
    reason = measures.EARLY_STOPPED if early else "AllWorkersFinished"
    return Verdict(status=ending.succeeded(facts.status, said, facts.now, reason))
