"""Find where agents and pods are ahead of the status, which was edited by hand, or lost.

Numbers are believed up to AT_ONCE plus one for each second of the job's age.
"""

from trainmaster.core.situation.facts import Facts
from trainmaster.wire import names

# A job of any age may have had so many attempts, and so many replicas of a slot.
AT_ONCE = 100
EDITED = "The status was edited or lost"  # so begins the message of a status that was raised


def reported_attempt(facts: Facts) -> int:
    """Return the highest attempt that an agent reports; 0 where none reports."""
    beats = (replica.heartbeat for replica in facts.observed.replicas)
    return max((beat.attempt for beat in beats if beat and beat.attempt <= _most(facts)), default=0)


def newest_incarnations(facts: Facts) -> dict[str, int]:
    """Return the newest incarnation of each slot whose replicas are newer than the status says."""
    known = facts.status.incarnations
    found: dict[str, int] = {}
    for replica in facts.observed.replicas:
        key = names.replica_key(replica.role, replica.index)
        if max(known.get(key, 0), found.get(key, 0)) < replica.incarnation <= _most(facts):
            found[key] = replica.incarnation
    return found


def _most(facts: Facts) -> int:
    return AT_ONCE + int((facts.now - facts.created).total_seconds())
