"""Clean up after the end: agents are told to exit, remaining pods are deleted, and the job itself after its TTL.

Terminal is terminal: nothing here can bring a job back, whatever happens to its replicas.
"""

from datetime import datetime

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.core import figures
from trainmaster.core.situation import sidecars
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.actions import Action, DeleteJob, DeleteReplica, GiveOrders
from trainmaster.core.states.observed import Replica, ReplicaPhase
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Orders

# A replica that is still up this long after the end has an agent that gets no orders.
GOODBYE_SECONDS = 30
# After this time it is checked whether the actions were done; else they are repeated.
AGAIN_SECONDS = 5


def finish(facts: Facts) -> Verdict:
    """Return what is left to do for a job that has ended, or is being deleted (its replicas go with it)."""
    if facts.job.metadata.deletion_timestamp:
        return Verdict(final=True)
    if facts.status.phase not in TERMINAL:
        return NOTHING
    ended = facts.status.completion_time or facts.now
    alive = [replica for replica in facts.observed.replicas if replica.alive]
    late = facts.now >= figures.later(ended, GOODBYE_SECONDS)
    deaf = [replica for replica in alive if late or replica.phase != ReplicaPhase.RUNNING]
    goodbye = Orders(
        Verb.EXIT,
        facts.status.attempt,
        f"The job has {facts.status.phase.lower()}.",
        exit_code=0 if facts.status.phase == Phase.SUCCEEDED else 1,
        grace_seconds=facts.regime.goodbye_seconds(),
    )
    actions: list[Action] = [GiveOrders(tuple((replica.uid, goodbye) for replica in alive))] if alive else []
    kept = [replica for replica in facts.observed.replicas if replica.kept_by]
    over = facts.now >= figures.later(ended, sidecars.KEPT_SECONDS)
    actions += [DeleteReplica(replica.name, replica.uid) for replica in deaf + (kept if over else [])]
    expiry = _expiry(facts)
    if expiry and facts.now >= expiry:
        actions.append(DeleteJob())
    return Verdict(actions=tuple(actions), wake_at=_next_look(facts.now, ended, alive, kept, expiry), final=True)


def _expiry(facts: Facts) -> datetime | None:
    """Return when the job itself is deleted; None: not at all."""
    seconds, ended = facts.job.spec.ttl_seconds_after_finished, facts.status.completion_time or facts.now
    return None if seconds is None else figures.later(ended, seconds)


def _next_look(
    now: datetime, ended: datetime, alive: list[Replica], kept: list[Replica], expiry: datetime | None
) -> datetime | None:
    told, over = (figures.later(ended, seconds) for seconds in (sidecars.TOLD_SECONDS, sidecars.KEPT_SECONDS))
    moments = [expiry] if expiry else []
    moments += [figures.later(ended, GOODBYE_SECONDS)] if alive else []
    moments += [told if told > now else over] if kept else []
    soonest = figures.later(now, AGAIN_SECONDS)
    return min((moment if moment > now else soonest for moment in moments), default=None)
