"""The agent of one pod as tests and benches play it over HTTP: what it says, and what orders to run make of it.

It says nothing that no real rank says: `tests/platforms/telling.py` holds real members, simulated ones and this one to
that.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord, ExitReport, Heartbeat, Orders, RankProgress, Rendezvous

from tests.platforms.telling import impossible

Document = dict[str, Any]


def first_heartbeat(pod: Document) -> Heartbeat:
    """Return what the agent of this pod says before anything else: who it is, and that it waits."""
    metadata = pod["metadata"]
    labels, owner = metadata["labels"], metadata["ownerReferences"][0]
    return Heartbeat(
        job=f"{metadata['namespace']}/{owner['name']}",
        job_uid=owner["uid"],
        role=labels[names.LABEL_ROLE],
        index=int(labels[names.LABEL_INDEX]),
        incarnation=int(labels[names.LABEL_INCARNATION]),
        pod_uid=metadata["uid"],
        sequence=0,
        state=AgentState.WAITING,
        attempt=0,
        offer=Rendezvous(29500, "key-0"),
        warm=True,
        takes_204=True,
    )


class PodAgent:
    """PID 1 of one pod, without a line to the operator: who uses it sends what it says."""

    def __init__(self, pod: Document) -> None:
        self.pod = pod
        self.state = AgentState.WAITING
        self.attempt = 0
        self.sequence = 0
        self.exit: ExitReport | None = None
        self.checkpoint: CheckpointRecord | None = None
        self.orders: Orders | None = None
        self.digest = ""
        self.rendezvous: Rendezvous | None = None
        self._first = first_heartbeat(pod)

    def heartbeat(self, rank: RankProgress, *, hold: bool) -> Heartbeat:
        """Return what it says now; `rank` is what the page of its rank says, if one has been started."""
        ranks = () if self.state == AgentState.WAITING else (rank,)
        assert not impossible(ranks), impossible(ranks)
        self.sequence += 1
        return dataclasses.replace(
            self._first,
            sequence=self.sequence,
            state=self.state,
            attempt=self.attempt,
            offer=Rendezvous(29500 + self.attempt, f"key-{self.attempt}"),
            rendezvous=self.rendezvous,
            roster_digest=self.digest,
            ranks=ranks,
            exit=self.exit,
            checkpoint=self.checkpoint,
            orders_seen=self.orders.version if self.orders else "",
            hold=hold,
        )

    def run(self, orders: Orders) -> None:
        """Have the ranks of this attempt."""
        assert orders.roster
        self.state, self.attempt, self.exit = AgentState.RUNNING, orders.attempt, None
        self.digest, self.rendezvous = orders.roster.digest, orders.roster.rendezvous
