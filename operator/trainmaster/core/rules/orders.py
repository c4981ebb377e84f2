"""Give every agent its orders: train this attempt with this roster, or wait for the others; a spare always waits."""

from trainmaster.core import figures
from trainmaster.core.failures import ledger
from trainmaster.core.regime import beginning
from trainmaster.core.situation import grace
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.actions import GiveOrders
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import Orders

# The time that ranks get at least to save before a resize that no failure forced, from SIGTERM to SIGKILL.
SAVE_SECONDS = 20.0


def give(facts: Facts) -> Verdict:
    """Give the same orders to all that take part, as long as they hold; a member that has not joined waits."""
    orders = _orders(facts)
    taking_part = {slot.key for slot in facts.regime.addressees(orders.roster)}
    others = Orders(Verb.WAIT, facts.status.attempt, f"Attempt {facts.status.attempt}: not among its members now.")
    given = [(slot, orders if slot.key in taking_part else others) for slot in facts.slots]
    given += [(slot, _stand_by(facts)) for slot in facts.spares]
    told = tuple((slot.replica.uid, order) for slot, order in given if slot.replica and slot.replica.alive)
    return Verdict(actions=(GiveOrders(told),), wake_at=facts.regime.next_orders()) if told else NOTHING


def _stand_by(facts: Facts) -> Orders:
    return Orders(Verb.WAIT, facts.status.attempt, f"Attempt {facts.status.attempt}: standing by as a spare.")


def _orders(facts: Facts) -> Orders:
    attempt, roster = facts.status.attempt, facts.regime.roster
    if ledger.undecided(facts.status):
        return Orders(Verb.WAIT, attempt, f"Attempt {attempt}: waiting to hear why the last one ended.")
    until = beginning.held_until(facts)
    if until:
        seconds = figures.duration((until - facts.status.restarts[-1].time).total_seconds())
        return Orders(
            Verb.WAIT, attempt, f"Attempt {attempt}: begins {seconds} after the failure, which may pass by then."
        )
    # From SIGTERM to SIGKILL: enough to save where a group grows or its pods are recreated.
    forgets = facts.job.spec.elasticity is not None or any(slot.stale for slot in facts.slots)
    saves = forgets and not ledger.is_open(facts.status)
    grace_seconds = max(SAVE_SECONDS, grace.to_save(facts.status)) if saves else Orders.grace_seconds
    if roster is None:
        # One sentence for the whole wait: naming missing replicas would wake every agent whenever one reports.
        why = f"Attempt {attempt}: waiting until all {len(facts.slots)} replicas are here."
        return Orders(Verb.WAIT, attempt, why, grace_seconds=grace_seconds)
    return facts.regime.order_to_run(roster, grace_seconds)
