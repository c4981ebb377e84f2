"""Give a job up that cannot start: hopeless obstacles end it at once, most others after `startSeconds`.

While the job trains, an obstacle of another replica is reported and ends nothing.
"""

from trainmaster.api.job_states import Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core import figures
from trainmaster.core.failures import classes
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.obstacles import HOPELESS, has_its_time, next_look, obstacles, sentence
from trainmaster.core.states import ending
from trainmaster.core.states.observed import Obstacle, ReplicaPhase
from trainmaster.core.states.verdict import Verdict
from trainmaster.wire import names


def give_up(facts: Facts) -> Verdict:
    """Fail a job that cannot start; else look again when its time is up."""
    # A worker that runs may train. Its agent need not have reported: the operator may have just started.
    workers = [slot.replica for slot in facts.slots if slot.replica and slot.role == names.WORKER]
    runs = any(replica.alive and replica.phase == ReplicaPhase.RUNNING for replica in workers)
    if runs and facts.status.phase in (Phase.STARTING, Phase.RUNNING):
        return Verdict(wake_at=next_look(facts))
    found = obstacles(facts)
    hopeless = [obstacle for obstacle, _ in found if obstacle.reason in HOPELESS]
    if hopeless:
        return Verdict(status=_failed(facts, hopeless[0]))
    limit = facts.job.spec.failure_policy.start_seconds
    waiting = [(figures.later(since, limit), obstacle) for obstacle, since in found if has_its_time(obstacle.reason)]
    if not waiting:
        return Verdict(wake_at=next_look(facts))
    end, obstacle = min(waiting, key=lambda pair: pair[0])
    if facts.now >= end:
        return Verdict(status=_failed(facts, obstacle))
    return Verdict(wake_at=min(end, next_look(facts) or end))


def _failed(facts: Facts, obstacle: Obstacle) -> TrainingJobStatus:
    message = f"{sentence(obstacle)} Then {classes.AGAIN}."
    return ending.failed(facts.status, obstacle.reason, message, facts.now)
