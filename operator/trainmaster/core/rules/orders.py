"""Give every agent its orders: train this attempt with this roster, or wait for the others; a spare always waits."""

from collections.abc import Sequence

from trainmaster.core import figures
from trainmaster.core.failures import ledger
from trainmaster.core.regime import beginning, membership
from trainmaster.core.regime.roster import roster
from trainmaster.core.situation import grace
from trainmaster.core.situation.facts import Facts, Slot
from trainmaster.core.states.actions import GiveOrders
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names
from trainmaster.wire.messages import Orders
from trainmaster.wire.states import Verb

# The time that ranks get at least to save before a resize that no failure forced, from SIGTERM to SIGKILL.
SAVE_SECONDS = 20.0


def give(facts: Facts) -> Verdict:
    """Give the same orders to all slots, as long as they hold."""
    uids, beside = _living(facts.slots), _living(facts.spares)
    if not uids and not beside:
        return NOTHING
    orders = _orders(facts)
    if membership.alone(facts):
        return _each_alone(facts, orders)
    given = [(uid, orders) for uid in uids]
    given += [(uid, _stand_by(facts)) for uid in beside]
    return Verdict(actions=(GiveOrders(tuple(given)),), wake_at=beginning.held_until(facts))


def _living(slots: Sequence[Slot]) -> list[str]:
    return [slot.replica.uid for slot in slots if slot.replica and slot.replica.alive]


def _stand_by(facts: Facts) -> Orders:
    return Orders(Verb.WAIT, facts.status.attempt, f"Attempt {facts.status.attempt}: standing by as a spare.")


def _grace_seconds(facts: Facts) -> float:
    """Return the seconds from SIGTERM to SIGKILL: enough to save where a group grows or its pods are recreated."""
    forgets = facts.job.spec.elasticity is not None or any(slot.stale for slot in facts.slots)
    saves = forgets and not ledger.is_open(facts.status)
    return max(SAVE_SECONDS, grace.to_save(facts.status)) if saves else Orders.grace_seconds


def _each_alone(facts: Facts, orders: Orders) -> Verdict:
    """Give the roster to its members. A replica without an address in it waits: it has not joined, or is put off."""
    members = orders.roster.members if orders.roster else ()
    named = {names.replica_key(one.role, one.index) for one in members if one.address}
    wait = Orders(Verb.WAIT, facts.status.attempt, f"Attempt {facts.status.attempt}: not among its members now.")
    alive = [slot for slot in facts.slots if slot.replica and slot.replica.alive]
    given = tuple((slot.replica.uid, orders if slot.key in named else wait) for slot in alive if slot.replica)
    held = membership.held(facts)
    ends = [membership.silent_until(facts), *(held.get(slot.key) for slot in alive)]
    return Verdict(actions=(GiveOrders(given),), wake_at=min((end for end in ends if end), default=None))


def _orders(facts: Facts) -> Orders:
    attempt, members = facts.status.attempt, roster(facts)
    hang = facts.job.spec.failure_policy.fixed_hang_seconds
    if ledger.undecided(facts.status):
        return Orders(Verb.WAIT, attempt, f"Attempt {attempt}: waiting to hear why the last one ended.")
    until = beginning.held_until(facts)
    if until:
        seconds = figures.duration((until - facts.status.restarts[-1].time).total_seconds())
        return Orders(
            Verb.WAIT, attempt, f"Attempt {attempt}: begins {seconds} after the failure, which may pass by then."
        )
    if members is None:
        # One sentence for the whole wait: naming missing replicas would wake every agent whenever one reports.
        why = f"Attempt {attempt}: waiting until all {len(facts.slots)} replicas are here."
        return Orders(Verb.WAIT, attempt, why, grace_seconds=_grace_seconds(facts))
    if members.independent:
        why = f"Attempt {attempt}: members come and go one by one."
        return Orders(Verb.RUN, attempt, why, members, hang_seconds=hang)
    why = f"Attempt {attempt}: all {len(facts.slots)} replicas are here."
    return Orders(Verb.RUN, attempt, why, members, grace_seconds=_grace_seconds(facts), hang_seconds=hang)
