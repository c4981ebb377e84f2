"""An agent as a test plays it: heartbeats over real HTTP, with the pod's real token."""

import dataclasses
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from trainmaster.wire import codec, names
from trainmaster.wire.messages import Orders, RankProgress

from tests.fakes.pod_agent import Document, PodAgent


@dataclass(frozen=True)
class Answer:
    """What the operator said to a heartbeat."""

    status: int
    text: str = ""


class Agent(PodAgent):
    """PID 1 of one pod, with its line to the operator."""

    def __init__(self, url: str, token: str, pod: Document) -> None:
        super().__init__(pod)
        self.url = url
        self.token = token
        self.step = 0
        self.phase = "train"
        self.changes: Document = {}  # lies, for tests of the intake's guard

    def beat(self, *, hold: bool = False) -> Answer:
        """Say it."""
        rank = RankProgress(self._first.index, self.step, self.phase, 0.5, 1000.0, 0.01, resumed_step=0)
        said = dataclasses.replace(self.heartbeat(rank, hold=hold), **self.changes)
        answer = self.raw(codec.encode(said))
        if answer.status == 200:
            self.orders = codec.decode(Orders, answer.text)
            if self.state == "Waiting" and self.orders.verb == "Wait":
                self.attempt = self.orders.attempt  # that it waits for
        return answer

    def tell(self, tries: int = 400) -> None:
        """Say it until it is taken: an operator that was just started may not know the pod yet."""
        for _ in range(tries):
            if self.beat().status in (200, 204):
                return
            time.sleep(0.05)
        raise AssertionError("nobody takes what it says")

    def raw(self, body: bytes) -> Answer:
        """Say anything."""
        request = urllib.request.Request(self.url + names.HEARTBEAT_PATH, body, method="POST")  # noqa: S310
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=100) as response:  # noqa: S310
                return Answer(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode())

    def await_refusal(self, status: int = 410, seconds: float = 100) -> str:
        """Until it is not believed any more: the operator learns of a pod's end a moment after it."""
        deadline = time.monotonic() + seconds
        while (answer := self.beat()).status != status:
            assert time.monotonic() < deadline, "it is still believed"
            time.sleep(0.05)  # nobody tells an agent that it is not believed, but the next answer
        return answer.text

    def obey(self) -> None:
        """Do as the orders say."""
        if self.orders and self.orders.verb == "Run":
            self.run(self.orders)

    def await_orders(self, verb: str, attempt: int = 0, tries: int = 40) -> Orders:
        """Hold requests until such orders come."""
        for _ in range(tries):
            answer = self.beat(hold=True)
            while answer.status == 421:  # the leader's lease is late: an agent asks again
                time.sleep(0.05)
                answer = self.beat(hold=True)
            assert answer.status in (200, 204), answer
            if self.orders and self.orders.verb == verb and self.orders.attempt >= attempt:
                return self.orders
        raise AssertionError(f"no order to {verb} {attempt}; the last is {self.orders}")


def plain(document: Document) -> str:
    """For messages of failed assertions."""
    return json.dumps(document, indent=1)[:3000]
