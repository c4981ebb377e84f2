"""A script's rank that ended with exit code 0 while another one waited for it: what the waiting rank cannot tell.

The error of the rank that waits says no more than that a connection was closed. Our own training loop takes the same
number of steps on each rank, so this is about scripts only.
"""

import dataclasses

from trainmaster.core import figures
from trainmaster.core.failures import classes
from trainmaster.core.failures.failures import Failure
from trainmaster.core.situation.facts import Facts

_WAITING = frozenset({classes.PEER_LOST, classes.STALLED})
_MOST_EVIDENCE = 1000


def behind(facts: Facts, waiting: Failure, attempt: int) -> Failure | None:
    """Return the end that explains the failure `waiting` of an attempt; None where there is none."""
    if waiting.failure_class not in _WAITING or not facts.job.spec.training.command:
        return None
    for slot in facts.slots:
        end = slot.heartbeat.good_end if slot.heartbeat else None
        if end and end.attempt == attempt:
            rank = figures.count(end.rank)
            said = (
                f"rank {rank} ended with exit code 0 while {waiting.replica} waited for it in a collective: all ranks "
                f"must take the same number of steps ({waiting.evidence})"
            )
            return dataclasses.replace(
                waiting,
                failure_class=classes.ENDED_EARLY,
                replica=f"{slot.key} rank {rank}",
                node=slot.replica.node if slot.replica else "",
                exit="exit code 0",
                evidence=said[:_MOST_EVIDENCE],
                fingerprint=classes.ENDED_EARLY,  # which of them ends first is chance
            )
    return None
