"""What every agent is told: train this attempt with this roster, or wait for the others."""

from trainmaster.core import ledger
from trainmaster.core.actions import GiveOrders
from trainmaster.core.facts import Facts
from trainmaster.core.roster import roster
from trainmaster.core.verdict import NOTHING, Verdict
from trainmaster.wire.messages import RUN, WAIT, Orders


def give(facts: Facts) -> Verdict:
    """The same orders to all slots, as long as they hold."""
    uids = [slot.replica.uid for slot in facts.slots if slot.replica and slot.replica.alive]
    if not uids:
        return NOTHING
    orders = _orders(facts)
    return Verdict(actions=(GiveOrders(tuple((uid, orders) for uid in uids)),))


def may_run(facts: Facts) -> bool:
    """Whether the order to run is given now. The phase Starting is written first."""
    return roster(facts) is not None and not ledger.undecided(facts.status)


def _orders(facts: Facts) -> Orders:
    attempt, members = facts.status.attempt, roster(facts)
    if ledger.undecided(facts.status):
        return Orders(WAIT, attempt, f"Attempt {attempt}: waiting to hear why the last one ended.")
    if members is None:
        # One sentence for the whole wait: naming the missing would wake every agent whenever one calls in.
        return Orders(WAIT, attempt, f"Attempt {attempt}: waiting until all {len(facts.slots)} replicas are here.")
    return Orders(RUN, attempt, f"Attempt {attempt}: all {len(facts.slots)} replicas are here.", members)
