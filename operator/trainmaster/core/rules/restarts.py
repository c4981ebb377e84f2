"""A rank died: raise the attempt, or stop and say why.

The whole group trains again from the newest checkpoint, in the same pods. Each failure is counted once: its report
carries the attempt, and the attempt rises with it.
"""

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import RestartRecord, TrainingJobStatus
from trainmaster.core import ending, failures, phases
from trainmaster.core.facts import Facts
from trainmaster.core.failures import Failure
from trainmaster.core.roster import roster
from trainmaster.core.verdict import NOTHING, Verdict
from trainmaster.wire import messages

LEDGER_LENGTH = 50
# Progress of this many checkpoint intervals past a failure shows that it did no lasting harm: it leaves the budget.
REFILL_INTERVALS = 10


def restart_ranks(facts: Facts) -> Verdict:
    """When an agent reports that its ranks of the present attempt died."""
    failed = [
        failures.of_rank(slot, slot.heartbeat.exit)
        for slot in facts.at_attempt(messages.FAILED)
        if slot.heartbeat and slot.heartbeat.exit
    ]
    if not failed:
        return NOTHING
    # The survivors' errors are echoes: name the one that came first where it can be told.
    failed.sort(key=lambda failure: failure.failure_class == failures.PEER_LOST)
    return Verdict(status=after_failure(facts, failed[0]))


def restart_drifted(facts: Facts) -> Verdict:
    """When an agent trains with another roster than the one that holds now (a member was replaced meanwhile)."""
    present = roster(facts)
    if present is None:
        return NOTHING
    drifted = [slot for slot in facts.at_attempt(messages.RUNNING) if _digest(slot.heartbeat) != present.digest]
    if not drifted:
        return NOTHING
    evidence = f"{drifted[0].key} trains with an older roster of attempt {facts.status.attempt}"
    failure = Failure(failures.ROSTER_CHANGED, drifted[0].key, "", "none", evidence, _step(facts))
    return Verdict(status=after_failure(facts, failure))


def after_failure(facts: Facts, failure: Failure, **more: object) -> TrainingJobStatus:
    """The status after `failure`: the next attempt, or the end. `more` are further fields to update with it."""
    why_stop = reason_to_stop(facts.job, failure)
    entry = _entry(facts, failure, why_stop)
    update: dict[str, object] = {
        "restarts": (*facts.status.restarts, entry)[-LEDGER_LENGTH:],
        "restart_count": facts.status.restart_count + (0 if why_stop else 1),
        **more,
    }
    counted = facts.status.model_copy(update=update)
    if why_stop:
        reason = "BadConfiguration" if failure.failure_class == failures.CONFIGURATION else "RestartsExhausted"
        return ending.failed(counted, reason, f"{failure.evidence}. {why_stop}", facts.now)
    message = f"{failure.replica}: {failure.evidence}. {entry.why}"
    return counted.model_copy(
        update={"attempt": facts.status.attempt + 1, "phase": phases.RESTARTING, "message": message}
    )


def reason_to_stop(job: TrainingJob, failure: Failure) -> str:
    """Why a restart would be no use; empty: restart."""
    if failure.failure_class in failures.FREE:
        return ""
    if failure.failure_class == failures.CONFIGURATION:
        return "A restart would not mend this; correct the job and apply it again."
    if _repeated(job.status, failure):
        return f"The same error came twice at step {failure.step} without progress between; a restart would repeat it."
    limit = job.spec.failure_policy.max_restarts
    if budget_used(job, failure.step) >= limit:
        return f"spec.failurePolicy.maxRestarts ({limit}) is used up."
    return ""


def budget_used(job: TrainingJob, step: int) -> int:
    """Restarts that count: the job's own failures since it last went REFILL_INTERVALS checkpoints past one."""
    horizon = REFILL_INTERVALS * job.spec.checkpoint.every_steps
    counted = (entry for entry in job.status.restarts if entry.failure_class not in failures.FREE)
    return sum(1 for entry in counted if step - entry.step < horizon)


def _repeated(status: TrainingJobStatus, failure: Failure) -> bool:
    """Python errors repeat for a reason; a signal at the same step may come from outside."""
    if failure.failure_class != failures.PYTHON_ERROR or not status.restarts:
        return False
    last = status.restarts[-1]
    return last.fingerprint == failure.fingerprint and failure.step <= last.step


def _entry(facts: Facts, failure: Failure, why_stop: str) -> RestartRecord:
    resumes_at = facts.status.checkpoint.step if facts.status.checkpoint else 0
    free = " It costs no restart budget." if failure.failure_class in failures.FREE else ""
    return RestartRecord(
        attempt=facts.status.attempt,
        time=facts.now,
        failure_class=failure.failure_class,
        replica=failure.replica,
        node=failure.node,
        exit=failure.exit,
        evidence=failure.evidence,
        step=failure.step,
        steps_lost=max(0, failure.step - resumes_at),
        fingerprint=failure.fingerprint,
        decision="Stop" if why_stop else "Restart",
        why=why_stop or f"Restarting from step {resumes_at}.{free}",
    )


def _digest(heartbeat: messages.Heartbeat | None) -> str:
    return heartbeat.roster_digest if heartbeat else ""


def _step(facts: Facts) -> int:
    return facts.status.progress.step if facts.status.progress else 0
