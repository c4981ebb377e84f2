"""An agent as a test plays it: heartbeats over real HTTP, with the pod's real token."""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from trainmaster.wire import codec, names
from trainmaster.wire.messages import CheckpointRecord, ExitReport, Heartbeat, Orders, RankProgress, Rendezvous
from trainmaster.wire.states import AgentState

Document = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the operator said to a heartbeat."""

    status: int
    text: str = ""


@dataclass
class Agent:
    """PID 1 of one pod."""

    url: str
    token: str
    pod: Document
    state: AgentState = AgentState.WAITING
    attempt: int = 0
    sequence: int = 0
    step: int = 0
    phase: str = "train"
    exit: ExitReport | None = None
    checkpoint: CheckpointRecord | None = None
    orders: Orders | None = None
    digest: str = ""
    rendezvous: Rendezvous | None = None
    changes: Document = field(default_factory=dict)  # lies, for tests of the intake's guard

    def heartbeat(self, *, hold: bool) -> Heartbeat:
        """What it says now."""
        metadata = self.pod["metadata"]
        labels, owner = metadata["labels"], metadata["ownerReferences"][0]
        self.sequence += 1
        rank = RankProgress(int(labels[names.LABEL_INDEX]), self.step, self.phase, 0.5, 1000.0, 0.01)
        said = {
            "job": f"{metadata['namespace']}/{owner['name']}",
            "job_uid": owner["uid"],
            "role": labels[names.LABEL_ROLE],
            "index": int(labels[names.LABEL_INDEX]),
            "incarnation": int(labels[names.LABEL_INCARNATION]),
            "pod_uid": metadata["uid"],
            "sequence": self.sequence,
            "state": self.state,
            "attempt": self.attempt,
            "offer": Rendezvous(29500 + self.attempt, f"key-{self.attempt}"),
            "rendezvous": self.rendezvous,
            "roster_digest": self.digest,
            "ranks": (rank,) if self.state in ("Running", "Finished") else (),
            "exit": self.exit,
            "checkpoint": self.checkpoint,
            "orders_seen": self.orders.version if self.orders else "",
            "hold": hold,
            "warm": True,
            "takes_204": True,
        }
        return Heartbeat(**{**said, **self.changes})

    def beat(self, *, hold: bool = False) -> Answer:
        """Say it."""
        answer = self.raw(codec.encode(self.heartbeat(hold=hold)))
        if answer.status == 200:
            self.orders = codec.decode(Orders, answer.text)
            if self.state == "Waiting" and self.orders.verb == "Wait":
                self.attempt = self.orders.attempt  # that it waits for
        return answer

    def raw(self, body: bytes) -> Answer:
        """Say anything."""
        request = urllib.request.Request(self.url + names.HEARTBEAT_PATH, body, method="POST")  # noqa: S310
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
                return Answer(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode())

    def await_refusal(self, tries: int = 200, status: int = 410) -> str:
        """Until it is not believed any more: the operator learns of a pod's end a moment after it."""
        for _ in range(tries):
            answer = self.beat()
            if answer.status == status:
                return answer.text
            time.sleep(0.02)  # nobody tells an agent that it is not believed, but the next answer
        raise AssertionError("it is still believed")

    def obey(self) -> None:
        """Do as the orders say."""
        if self.orders and self.orders.verb == "Run" and self.orders.roster:
            self.state, self.attempt = AgentState.RUNNING, self.orders.attempt
            self.digest, self.rendezvous = self.orders.roster.digest, self.orders.roster.rendezvous
            self.exit = None

    def await_orders(self, verb: str, attempt: int = 0, tries: int = 40) -> Orders:
        """Hold requests until such orders come."""
        for _ in range(tries):
            answer = self.beat(hold=True)
            assert answer.status in (200, 204), answer
            if self.orders and self.orders.verb == verb and self.orders.attempt >= attempt:
                return self.orders
        raise AssertionError(f"no order to {verb} {attempt}; the last is {self.orders}")


def plain(document: Document) -> str:
    """For messages of failed assertions."""
    return json.dumps(document, indent=1)[:3000]
